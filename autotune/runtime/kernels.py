"""The kernel of one problem, with its configuration chosen and loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.driver.dependent_launch import Dependence
from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.lookup.answer import How
from autotune.problem import SWIGLU, Problem, epilogue_of
from autotune.runners.objective import HOT, Objective
from autotune.runtime import problems
from autotune.runtime.arrays import MatrixMemory
from autotune.runtime.checked_operands import OPERANDS, Addresses, aligned, check_factors
from autotune.runtime.executable import Enqueue, Executable, Steps
from autotune.runtime.matmul import KEPT_CALLS, Matmul, Operands
from autotune.runtime.scales import SCALE_BYTES
from autotune.runtime.state import Runtime

OptionalSteps = tuple[int | None, int | None, int | None, int | None]
"""Leading dimensions or strides of A, B, C and the residual; None: without gaps."""


class Kernel(Matmul):
    """The kernel of one problem on one GPU, with its configuration chosen and loaded.

    Attributes:
        problem: the problem it computes.
        config: the configuration it runs, even if the problem is tuned again later.
        how: how that configuration was found (see `lookup.Answer`).
        plan: its launches for operands without gaps.
    """

    def __init__(
        self, runtime: Runtime, problem: Problem, ordinal: int, objective: Objective = HOT
    ) -> None:
        super().__init__(runtime)
        answer = runtime.answer(problem, ordinal, objective)
        self.problem = problem
        self.config = answer.config
        self.how: How = answer.how
        self._output = problem.output
        self._ordinal = ordinal
        self._launches: dict[Any, Enqueue] = {}
        self.plan = self._aligned(Alignment.dense(problem)).plan

    def bind(
        self,
        a: Any,
        b: Any,
        out: Any,
        alpha: float = 1.0,
        beta: float = 0.0,
        bias: Any = None,
        dependent: bool = False,
        scale_a: Any = None,
        scale_b: Any = None,
        residual: Any = None,
        scale_result: Any = None,
        amax: Any = None,
    ) -> Callable[[], None]:
        """The kernel bound to these arrays: a function without arguments, which enqueues the gemm
        on the caller's current stream and checks nothing.

        It keeps the arrays alive. Their contents may change; address, shape and strides must not.
        `dependent` is that of `autotune.matmul`.

        Raises:
            ArrayError: as a call with these arrays.
            UsageError: for `dependent` on a device below compute capability 9.0.
        """
        kept = a, b, out, bias, scale_a, scale_b, residual, scale_result, amax
        absent = bias is None, scale_a is None and scale_b is None, residual is None
        rest = alpha, beta, None, None, None, None, dependent, False, False, *absent
        gemm = self._find(kept, rest)
        assert gemm is not None  # as it never uses the vendor's library, nor takes empty arrays
        enqueue, ordinal = gemm.enqueue, gemm.ordinal
        stream = self.runtime.framework(a, "A").stream

        def bound() -> None:
            enqueue(stream(kept, ordinal))

        return bound

    def launch(
        self,
        a: int,
        b: int,
        c: int,
        stream: int = 0,
        *,
        lda: int | None = None,
        ldb: int | None = None,
        ldc: int | None = None,
        stride_a: int | None = None,
        stride_b: int | None = None,
        stride_c: int | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        bias: int = 0,
        dependent: bool = False,
        scale_a: int = 0,
        scale_b: int = 0,
        residual: int = 0,
        ldr: int | None = None,
        stride_r: int | None = None,
        scale_result: int = 0,
        amax: int = 0,
    ) -> None:
        """Enqueues the gemm of matrices at addresses on a stream. Only alignment and strides are
        checked; the addresses are trusted.

        Leading dimensions, and strides from one matrix of a batch to the next, are in elements; by
        default there are no gaps. A stride of 0 for A or B is one matrix for the whole batch.
        `bias` is the address of n elements if the problem has one, else 0; `scale_a` and `scale_b`
        are the addresses of scales as in `Problem.scale_shapes` if it has them, and `residual`,
        with `ldr` and `stride_r`, that of a matrix like C if it has one. `scale_result` and `amax`
        are the addresses of one number each that a C in fp8 may have. `dependent` is that of
        `autotune.matmul`.

        Raises:
            UsageError: for `dependent` on a device below compute capability 9.0.
            ArrayError: for a leading dimension shorter than a row, a misaligned address, a missing
                bias, scale or residual, or one that the problem does not have.
            RunnerError: if the driver refuses the launch.
        """
        addresses = a, b, c, bias, scale_a, scale_b, residual, scale_result, amax
        steps = (lda, ldb, ldc, ldr), (stride_a, stride_b, stride_c, stride_r)
        key = addresses, alpha, beta, dependent, steps
        enqueue = self._launches.get(key)
        if enqueue is None:
            if len(self._launches) >= KEPT_CALLS:
                self._launches.clear()
            enqueue = self._bind_at(addresses, *steps, alpha, beta, dependent)
            self._launches[key] = enqueue
        enqueue(stream)

    def _bind_at(
        self,
        addresses: Addresses,
        pitches: OptionalSteps,
        steps: OptionalSteps,
        alpha: float,
        beta: float,
        dependent: bool,
    ) -> Enqueue:
        """The function that enqueues the gemm of matrices at addresses."""
        problem = self.problem
        check_factors(problem, alpha, beta)
        least, rows = problem.leading_dimensions, problem.stored_rows
        leading = _or_default(pitches, (*least, least[2] if problem.has_residual else 0))
        lda, ldb, ldc, ldr = leading
        dense = rows[0] * lda, rows[1] * ldb, rows[2] * ldc, rows[2] * ldr
        strides = (0, 0, 0, 0) if problem.batch == 1 else _or_default(steps, dense)
        self._check_launch(addresses, leading, strides)
        executable = self._aligned(aligned(problem, leading, strides, addresses))
        factors = alpha, beta, Dependence(dependent)
        return executable.bind(addresses, leading, strides, *factors).enqueue

    def _check_launch(
        self,
        addresses: Addresses,
        leading: Steps,
        strides: Steps,
    ) -> None:
        """Refuses operands that the problem's kernels would misread."""
        problem, sizes = self.problem, problems.sizes(self.problem)
        least = problem.leading_dimensions
        for name, ld, shortest, address, size in zip(
            "ABC", leading[:3], least, addresses[:3], sizes, strict=True
        ):
            if ld < shortest or address % size:
                raise ArrayError(
                    f"{name} at {address:#x} has leading dimension {ld}; it takes {shortest} or "
                    f"more, and an address that is a multiple of {size}"
                )
        memory = MatrixMemory(problem.m, problem.width, leading[2], problem.batch, strides[2])
        if min(strides) < 0 or not memory.disjoint:
            raise ArrayError(
                f"strides {strides[:3]} of A, B and C: none may be negative, and the "
                f"{problem.batch} matrices of C, {problem.m} rows of {problem.width} that are "
                f"{leading[2]} apart, must not overlap"
            )
        has_scales, size = problem.scale != "none", problem.output_bytes
        of_bias = problem.bias_element.bytes if problem.has_bias else 0
        _check_pointer("bias", addresses[3], problem, of_bias)
        for name, scale in zip(("scale_a", "scale_b"), addresses[4:6], strict=True):
            _check_pointer(name, scale, problem, SCALE_BYTES if has_scales else 0)
        _check_pointer("residual", addresses[6], problem, size if problem.has_residual else 0)
        for name, address in zip(OPERANDS[7:], addresses[7:], strict=True):
            if address and (not problem.has_fp8_output or address % SCALE_BYTES):
                raise ArrayError(f"{name} at {address:#x}: {problem} takes 0, or fp8 one number")
        if problem.has_residual and (leading[3] < problem.n or strides[3] < 0):
            raise ArrayError(
                f"residual has leading dimension {leading[3]} and stride {strides[3]}; it takes "
                f"{problem.n} or more, and 0 or more"
            )

    def _epilogue(self, has_bias: bool, activation: str | None, has_residual: bool) -> str:
        own = SWIGLU if self.problem.gated else self.problem.activation
        return epilogue_of(has_bias, activation or own, has_residual)

    def _problem(
        self,
        operands: Operands,
        epilogue: str,
        compute: str | None,
        scale: str | None,
        accumulate: str | None,
        output: str | None = None,
    ) -> Problem:
        own, ordinal = self.problem, operands[0].ordinal
        if operands[0].empty or operands[1].empty:
            shapes = f"A is {operands[0].shape}, B {operands[1].shape}"
            raise ArrayError(f"{shapes}; this kernel is for {own}")
        problem = problems.problem_of(
            *operands,
            compute=compute or own.compute,
            layout=own.layout,
            epilogue=epilogue,
            output=output,
            scale=scale or own.scale,
            accumulate=accumulate or own.accumulate,
        )
        if problem != own:
            raise ArrayError(f"the operands make a product {problem}; this kernel is for {own}")
        if ordinal != self._ordinal:
            raise ArrayError(
                f"A is on CUDA device {ordinal}; this kernel is for device {self._ordinal}"
            )
        return problem

    def _choice(
        self, problem: Problem, ordinal: int, alignment: Alignment, sums: bool, cold: bool, on: Any
    ) -> tuple[Config, bool]:
        """Its own configuration, never the vendor's library: the caller asked for the kernel."""
        del problem, ordinal, alignment, sums, cold, on
        return self.config, False

    def _aligned(self, alignment: Alignment) -> Executable:
        return self.runtime.executable(self.config, self.problem, self._ordinal, alignment)


def _or_default(values: OptionalSteps, defaults: Steps) -> Steps:
    a, b, c, residual = (
        default if value is None else value for value, default in zip(values, defaults, strict=True)
    )
    return a, b, c, residual


def _check_pointer(name: str, address: int, problem: Problem, size: int) -> None:
    """Refuses the address of elements of a size that is 0 or between two of them; one other than 0
    if the size is 0."""
    if (size > 0) != (address != 0) or (size and address % size):
        wanted = f"an address that is a multiple of {size}" if size else "none: 0"
        raise ArrayError(f"{name} is at {address:#x}; {problem} takes {wanted}")
