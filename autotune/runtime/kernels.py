"""The kernel of one problem, with its configuration chosen and loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from autotune.cuda.launches import Dependence
from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.lookup.answer import How
from autotune.problem import SWIGLU, Problem, epilogue_of
from autotune.problem.call import FURTHER, MATRICES, Call, Operand
from autotune.runners.objective import HOT, Objective
from autotune.runtime.arrays import ArrayInfo, MatrixMemory
from autotune.runtime.checked_operands import (
    CallOptions,
    aligned,
    check_factors,
    named_operands,
)
from autotune.runtime.executable import Enqueue, Executable
from autotune.runtime.matmul import KEPT_CALLS, Matmul
from autotune.runtime.state import Runtime
from autotune.settings import Policy
from autotune.settings import policy as current_policy

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.problem.call import LaunchWords

_LAUNCH_WORDS = {
    *(operand.argument for operand in FURTHER),
    *(word for matrix in MATRICES for word in (matrix.pitch, matrix.stride)),
}
"""The keywords of `LaunchWords`."""


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
        self._output, self._layout = problem.output, problem.layout
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
        policy: Policy | None = None,
        **further: Any,
    ) -> Callable[[], None]:
        """The kernel bound to these arrays: a function without arguments, which enqueues the gemm
        on the caller's current stream and checks nothing.

        It keeps the arrays alive. Their contents may change; address, shape and strides must not.
        The policy and the further operands, such as `scale_a`, are those of `autotune.matmul`.

        Raises:
            ArrayError: as a call with these arrays.
            UsageError: for `dependent` on a device below compute capability 9.0.
        """
        kept = named_operands({"a": a, "b": b, "out": out, "bias": bias, **further})
        options = CallOptions(alpha, beta, policy=policy or current_policy())
        if options.policy.verify:
            self._verify(kept, options)
        gemm = self._find(kept, options)
        assert gemm is not None  # as it never uses the vendor's library, nor takes empty arrays
        enqueue, ordinal, arrays = gemm.enqueue, gemm.ordinal, (*kept.values(),)
        stream = self.runtime.framework(a, "A").stream

        def bound() -> None:
            enqueue(stream(arrays, ordinal))

        return bound

    def launch(
        self,
        a: int,
        b: int,
        c: int,
        stream: int = 0,
        *,
        alpha: float = 1.0,
        beta: float = 0.0,
        dependent: bool = False,
        **words: Unpack[LaunchWords],
    ) -> None:
        """Enqueues the gemm of matrices at addresses on a stream. Only alignment and strides are
        checked; the addresses are trusted.

        Args:
            a: the address of A.
            b: the address of B.
            c: the address of C.
            stream: the handle of the stream; 0 is the default stream.
            alpha: factor of the product.
            beta: factor of C.
            dependent: that of `autotune.Policy`; the current policy is not read.
            words: leading dimensions `lda`, `ldb`, `ldc` and `ldr`, and strides `stride_a`,
                `stride_b`, `stride_c` and `stride_r` from one matrix of a batch to the next, in
                elements; None, the default, is without gaps, and a stride of 0 for A or B one
                matrix for the whole batch. The addresses of what the problem has besides, such as
                `bias`; 0 is none (see `FurtherArrays`).

        Raises:
            UsageError: for `dependent` on a device below compute capability 9.0.
            ArrayError: for a leading dimension shorter than a row, a misaligned address, a missing
                bias, scale or residual, or one that the problem does not have.
            RunnerError: if the driver refuses the launch.
        """
        key = a, b, c, alpha, beta, dependent, *words.items()
        enqueue = self._launches.get(key)
        if enqueue is None:
            if len(self._launches) >= KEPT_CALLS:
                self._launches.clear()
            enqueue = self._bind_at({"a": a, "b": b, "c": c}, dict(words), alpha, beta, dependent)
            self._launches[key] = enqueue
        enqueue(stream)

    def _bind_at(
        self,
        addresses: dict[str, int],
        words: Mapping[str, Any],
        alpha: float,
        beta: float,
        dependent: bool,
    ) -> Enqueue:
        """The function that enqueues the gemm of matrices at addresses."""
        problem = self.problem
        check_factors(problem, alpha, beta)
        if unknown := [*words.keys() - _LAUNCH_WORDS]:
            raise TypeError(f"a launch has no argument {unknown[0]!r}")
        addresses |= {row.name: words.get(row.argument, 0) for row in FURTHER}
        pitches, strides = {}, {}
        for row in MATRICES:
            if not row.present(problem):
                continue
            pitch, stride = words.get(row.pitch), words.get(row.stride)
            least, rows = problem.leading_dimensions[row.place], problem.stored_rows[row.place]
            pitches[row.name] = least if pitch is None else pitch
            dense = rows * pitches[row.name] if stride is None else stride
            strides[row.name] = 0 if problem.batch == 1 else dense
        self._check_launch(addresses, pitches, strides)
        executable = self._aligned(aligned(problem, pitches, strides, addresses))
        call = Call(addresses, pitches, strides, alpha, beta)
        return executable.bind(call, Dependence(dependent)).enqueue

    def _check_launch(
        self,
        addresses: Mapping[str, int],
        pitches: Mapping[str, int],
        strides: Mapping[str, int],
    ) -> None:
        """Refuses operands that the problem's kernels would misread."""
        problem = self.problem
        for row in MATRICES[:3]:
            address, pitch = addresses[row.name], pitches[row.name]
            least, size = problem.leading_dimensions[row.place], row.element(problem).bytes
            if pitch < least or address % size:
                raise ArrayError(
                    f"{row.name.upper()} at {address:#x} has leading dimension {pitch}; it takes "
                    f"{least} or more, and an address that is a multiple of {size}"
                )
        pitch, stride = pitches["c"], strides["c"]
        memory = MatrixMemory(problem.m, problem.width, pitch, problem.batch, stride)
        if min(strides.values()) < 0 or not memory.disjoint:
            raise ArrayError(
                f"strides {tuple(strides.values())[:3]} of A, B and C: none may be negative, and "
                f"the {problem.batch} matrices of C, {problem.m} rows of {problem.width} that are "
                f"{pitch} apart, must not overlap"
            )
        for row in FURTHER:
            _check_pointer(row, addresses[row.name], problem)
        for row in MATRICES[3:]:
            least = problem.leading_dimensions[row.place]
            if row.name in pitches and pitches[row.name] < least:
                raise ArrayError(
                    f"{row.name} has leading dimension {pitches[row.name]}; it takes {least} or "
                    "more"
                )

    def _epilogue(self, has_bias: bool, activation: str | None, has_residual: bool) -> str:
        own = SWIGLU if self.problem.gated else self.problem.activation
        return epilogue_of(has_bias, activation or own, has_residual)

    def _problem(
        self, infos: Mapping[str, ArrayInfo], options: CallOptions, output: str | None = None
    ) -> Problem:
        own, a, b = self.problem, infos["a"], infos["b"]
        if a.empty or b.empty:
            raise ArrayError(f"A is {a.shape}, B {b.shape}; this kernel is for {own}")
        stated = options._replace(
            compute=options.compute or own.compute,
            scale=options.scale or own.scale,
            accumulate=options.accumulate or own.accumulate,
        )
        problem = super()._problem(infos, stated, output)
        if problem != own:
            raise ArrayError(f"the operands make a product {problem}; this kernel is for {own}")
        if a.ordinal != self._ordinal:
            raise ArrayError(
                f"A is on CUDA device {a.ordinal}; this kernel is for device {self._ordinal}"
            )
        return problem

    def _choice(
        self,
        problem: Problem,
        ordinal: int,
        alignment: Alignment,
        sums: bool,
        objective: Objective,
        on: Any,
    ) -> tuple[Config, bool]:
        """Its own configuration, never the vendor's library: the caller asked for the kernel."""
        del problem, ordinal, alignment, sums, objective, on
        return self.config, False

    def _aligned(self, alignment: Alignment) -> Executable:
        return self.runtime.executable(self.config, self.problem, self._ordinal, alignment)


def _check_pointer(operand: Operand, address: int, problem: Problem) -> None:
    """Refuses the address of an operand beside A, B and C if it is missing, lies between two
    elements, or if the problem does not have the operand."""
    present, size = operand.present(problem), operand.element(problem).bytes
    missing = present and not address and not operand.optional
    if missing or (address and not present) or address % size:
        wanted = f"an address that is a multiple of {size}" if present else "none: 0"
        raise ArrayError(f"{operand.argument} is at {address:#x}; {problem} takes {wanted}")
