"""Products of arrays: what is checked and found out once, and what is left for each call."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from autotune.config import Config
from autotune.errors import ArrayError
from autotune.lookup import How
from autotune.plan import Alignment
from autotune.problem import Problem
from autotune.runtime import arrays
from autotune.runtime.arrays import Operand, Window
from autotune.runtime.executable import Executable
from autotune.runtime.state import Runtime, Tuner

Array = TypeVar("Array")

# The widest vector a kernel loads is 16 bytes, so nothing else of an address matters to a plan.
_VECTOR = 16


class _Bound(NamedTuple):
    """What operands of one signature need at each call; extents in bytes."""

    executable: Executable
    ordinal: int
    windows: tuple[Window, Window, Window]
    leading: tuple[int, int, int]
    extents: tuple[int, int, int]


class Product:
    """`C = alpha op(A) op(B) + beta C` for arrays of any shape and layout.

    Operands that look as they did in an earlier call, their addresses aside, are not checked
    again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._shapes: dict[Any, tuple[int, int]] = {}
        self._bound: dict[Any, _Bound] = {}

    def __call__(
        self, a: Any, b: Any, out: Array | None = None, alpha: float = 1.0, beta: float = 0.0
    ) -> Array:
        """Enqueues the product on the caller's current stream; see `autotune.runtime.matmul`."""
        framework_of = self.runtime.framework
        framework = framework_of(a, "A")
        at_a, kind_a = framework.read(a)
        at_b, kind_b = framework_of(b, "B").read(b)
        if out is None:
            if beta:
                raise ArrayError(f"beta is {beta} but there is no out to scale; give out=")
            shape = self._shapes.get((kind_a, kind_b)) or self._shape(a, b, kind_a, kind_b)
            out = framework.empty(a, shape)
        at_c, kind_c = framework_of(out, "out").read(out)
        addresses = at_a, at_b, at_c
        key = kind_a, kind_b, kind_c, at_a % _VECTOR, at_b % _VECTOR, at_c % _VECTOR
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind((a, b, out), addresses)
        size_a, size_b, size_c = bound.extents
        end = at_c + size_c
        if (at_a < end and at_c < at_a + size_a) or (at_b < end and at_c < at_b + size_b):
            _refuse_overlap(bound, addresses)
        stream = framework.stream((a, b, out), bound.ordinal)
        bound.executable.run(stream, addresses, bound.leading, alpha, beta)
        return out

    def tune(self, a: Any, b: Any, tuner: Tuner) -> None:
        """Calls the tuner for the product of two arrays, unless its shape is tuned already."""
        one, other = self.runtime.describe(a, "A"), self.runtime.describe(b, "B")
        problem, ordinal = self._problem(one, other), arrays.check(one)
        if self.runtime.resolve(problem, ordinal).how != "exact":
            tuner(problem, self.runtime.gpu(ordinal).device)
            self.forget(problem)

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again at its next product, because it was tuned since."""
        self.runtime.forget(problem)
        self._bound.clear()

    def _problem(self, a: Operand, b: Operand) -> Problem:
        return arrays.problem_of(a, b)

    def _config(self, problem: Problem, ordinal: int) -> Config:
        return self.runtime.answer(problem, ordinal).config

    def _shape(self, a: Any, b: Any, kind_a: Any, kind_b: Any) -> tuple[int, int]:
        problem = self._problem(self.runtime.describe(a, "A"), self.runtime.describe(b, "B"))
        return self._shapes.setdefault((kind_a, kind_b), (problem.m, problem.n))

    def _bind(self, operands: tuple[Any, Any, Any], addresses: tuple[int, int, int]) -> _Bound:
        a, b, out = map(self.runtime.describe, operands, ("A", "B", "out"))
        problem, ordinal = self._problem(a, b), arrays.check(a)
        windows = (
            arrays.window(a, problem.layout[0])[1],
            arrays.window(b, problem.layout[1])[1],
            arrays.check_out(out, problem, ordinal),
        )
        leading = windows[0].leading, windows[1].leading, windows[2].leading
        alignment = Alignment.of(leading, addresses)
        config = self._config(problem, ordinal)
        executable = self.runtime.executable(config, problem, ordinal, alignment)
        extents = windows[0].extent, windows[1].extent, windows[2].extent
        return _Bound(executable, ordinal, windows, leading, extents)


class Kernel(Product):
    """The product of one problem on one GPU, with its configuration chosen and loaded.

    Attributes:
        problem: what it computes.
        config: the configuration that runs, also if the problem is tuned again meanwhile.
        how: where that is from: `exact`, `nearest` or `predicted`.
        plan: its launches for operands without gaps.
    """

    def __init__(self, runtime: Runtime, problem: Problem, ordinal: int) -> None:
        super().__init__(runtime)
        answer = runtime.answer(problem, ordinal)
        self.problem = problem
        self.config = answer.config
        self.how: How = answer.how
        self._ordinal = ordinal
        self._raw: dict[Any, Executable] = {}
        self.plan = self._aligned(Alignment.dense(problem)).plan

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
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> None:
        """Enqueues the product of matrices at addresses on a stream, which are taken on trust.

        Leading dimensions are in elements; without gaps if they are not given.

        Raises:
            ArrayError: for a leading dimension shorter than a row or an odd address.
            RunnerError: if the driver refuses the launch.
        """
        dense = self.problem.leading_dimensions
        leading = (
            dense[0] if lda is None else lda,
            dense[1] if ldb is None else ldb,
            dense[2] if ldc is None else ldc,
        )
        addresses = a, b, c
        key = leading, a % _VECTOR, b % _VECTOR, c % _VECTOR
        executable = self._raw.get(key)
        if executable is None:
            for name, ld, least, address in zip("ABC", leading, dense, addresses, strict=True):
                if ld < least or address % self.problem.element_bytes:
                    raise ArrayError(
                        f"{name} at {address:#x} has leading dimension {ld}; it takes {least} or "
                        f"more, and an address that is a multiple of {self.problem.element_bytes}"
                    )
            executable = self._raw[key] = self._aligned(Alignment.of(leading, addresses))
        executable.run(stream, addresses, leading, alpha, beta)

    def _problem(self, a: Operand, b: Operand) -> Problem:
        problem = arrays.problem_of(a, b, self.problem.layout, self.problem.compute)
        if problem != self.problem:
            raise ArrayError(f"A and B make a product {problem}; this kernel is for {self.problem}")
        if a.ordinal != self._ordinal:
            raise ArrayError(
                f"A is on CUDA device {a.ordinal}; this kernel is for device {self._ordinal}"
            )
        return problem

    def _config(self, problem: Problem, ordinal: int) -> Config:  # noqa: ARG002
        return self.config

    def _aligned(self, alignment: Alignment) -> Executable:
        return self.runtime.executable(self.config, self.problem, self._ordinal, alignment)


def _refuse_overlap(bound: _Bound, addresses: tuple[int, int, int]) -> None:
    *inputs, out = zip(("A", "B", "out"), addresses, bound.windows, strict=True)
    for name, address, window in inputs:
        if arrays.overlap(address, window, *out[1:]):
            raise ArrayError(f"out at {out[1]:#x} overlaps {name} at {address:#x}; give another")
