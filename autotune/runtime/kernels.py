"""Products of one problem, with its kernels chosen and loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.lookup.answer import How
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays
from autotune.runtime.arrays import Window
from autotune.runtime.bound_gemm import KEPT_CALLS, BoundGemm, Four, Operands
from autotune.runtime.executable import Enqueue, Executable
from autotune.runtime.state import Runtime

Some = tuple[int | None, int | None, int | None]
"""Of A, B and C, as far as they are given."""


class Kernel(BoundGemm):
    """The product of one problem on one GPU, with its configuration chosen and loaded.

    Attributes:
        problem: what it computes.
        config: the configuration that runs, also if the problem is tuned again meanwhile.
        how: where that is from (see `lookup.Answer`).
        plan: its launches for operands without gaps.
    """

    def __init__(self, runtime: Runtime, problem: Problem, ordinal: int) -> None:
        super().__init__(runtime)
        answer = runtime.answer(problem, ordinal)
        self.problem = problem
        self.config = answer.config
        self.how: How = answer.how
        self._wide = problem.output_type == "f32"
        self._ordinal = ordinal
        self._raw: dict[Any, Enqueue] = {}
        self.plan = self._aligned(Alignment.dense(problem)).plan

    def bind(
        self,
        a: Any,
        b: Any,
        out: Any,
        alpha: float = 1.0,
        beta: float = 0.0,
        bias: Any = None,
    ) -> Callable[[], None]:
        """The product of these arrays as a call without arguments, which enqueues it on the
        caller's current stream each time and looks at nothing else any more.

        It keeps the arrays alive; what they hold may change, where and how they lie must not.

        Raises:
            ArrayError: as a call with them.
        """
        kept = a, b, out, bias
        placed = self._found(kept, (alpha, beta, None, None, False, bias is None))
        assert placed is not None  # without the vendor's library
        enqueue, ordinal = placed.enqueue, placed.ordinal
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
    ) -> None:
        """Enqueues the product of matrices at addresses on a stream, which are taken on trust.

        Leading dimensions, and strides from one matrix of a batch to the next, are in elements;
        without gaps if they are not given. A stride of 0 for A or B is one matrix for all. `bias`
        is the address of n elements if the problem has one, else 0.

        Raises:
            ArrayError: for a leading dimension shorter than a row, an odd address, or a bias that
                the problem has none of, or the reverse.
            RunnerError: if the driver refuses the launch.
        """
        key = a, b, c, bias, alpha, beta, lda, ldb, ldc, stride_a, stride_b, stride_c
        enqueue = self._raw.get(key)
        if enqueue is None:
            steps = (lda, ldb, ldc), (stride_a, stride_b, stride_c)
            if len(self._raw) >= KEPT_CALLS:
                self._raw.clear()
            enqueue = self._raw[key] = self._at((a, b, c, bias), *steps, alpha, beta)
        enqueue(stream)

    def _at(
        self, addresses: Four, pitches: Some, steps: Some, alpha: float, beta: float
    ) -> Enqueue:
        """What enqueues the product of matrices at addresses."""
        leading = _given(pitches, self.problem.leading_dimensions)
        rows = self.problem.stored_rows
        dense = rows[0] * leading[0], rows[1] * leading[1], rows[2] * leading[2]
        single = self.problem.batch == 1
        strides = (0, 0, 0) if single else _given(steps, dense)
        self._check(addresses, leading, strides)
        alignment = Alignment.of(leading, addresses[:3], arrays.sizes(self.problem), strides)
        return self._aligned(alignment).bound(addresses, leading, strides, alpha, beta).enqueue

    def _check(
        self,
        addresses: Four,
        leading: tuple[int, int, int],
        strides: tuple[int, int, int],
    ) -> None:
        """Refuses what the problem's kernels must not get."""
        problem, sizes = self.problem, arrays.sizes(self.problem)
        least = problem.leading_dimensions
        for name, ld, shortest, address, size in zip(
            "ABC", leading, least, addresses[:3], sizes, strict=True
        ):
            if ld < shortest or address % size:
                raise ArrayError(
                    f"{name} at {address:#x} has leading dimension {ld}; it takes {shortest} or "
                    f"more, and an address that is a multiple of {size}"
                )
        memory = Window(problem.m, problem.n, leading[2], problem.batch, strides[2])
        if min(strides) < 0 or not memory.disjoint:
            raise ArrayError(
                f"strides {strides} of A, B and C: none may be negative, and the {problem.batch} "
                f"matrices of C, {problem.m} rows of {problem.n} that are {leading[2]} apart, must "
                "not overlap"
            )
        size = problem.output_bytes
        if problem.has_bias != (addresses[3] != 0) or addresses[3] % size:
            raise ArrayError(
                f"bias is at {addresses[3]:#x}; {problem} takes "
                + (f"an address that is a multiple of {size}" if problem.has_bias else "none: 0")
            )

    def _epilogue(self, has_bias: bool, activation: str | None) -> str:
        return epilogue_of(has_bias, activation or self.problem.activation)

    def _problem(self, operands: Operands, epilogue: str, compute: str | None) -> Problem:
        own, home = self.problem, operands[0].ordinal
        problem = arrays.problem_of(
            *operands, compute=compute or own.compute, layout=own.layout, epilogue=epilogue
        )
        if problem != own:
            raise ArrayError(f"the operands make a product {problem}; this kernel is for {own}")
        if home != self._ordinal:
            raise ArrayError(
                f"A is on CUDA device {home}; this kernel is for device {self._ordinal}"
            )
        return problem

    def _config(self, problem: Problem, ordinal: int) -> Config:  # noqa: ARG002
        return self.config

    def _vendor(self, problem: Problem, ordinal: int) -> bool:  # noqa: ARG002
        """Never: it is the tuned kernel that was asked for."""
        return False

    def _aligned(self, alignment: Alignment) -> Executable:
        return self.runtime.executable(self.config, self.problem, self._ordinal, alignment)


def _given(values: Some, otherwise: tuple[int, int, int]) -> tuple[int, int, int]:
    a, b, c = (
        default if value is None else value
        for value, default in zip(values, otherwise, strict=True)
    )
    return a, b, c
