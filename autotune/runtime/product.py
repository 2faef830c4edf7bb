"""Products of arrays: what is checked and found out once, and what is left for each call."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from autotune.config import Config
from autotune.errors import ArrayError
from autotune.lookup import How
from autotune.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays
from autotune.runtime.arrays import Operand, Window
from autotune.runtime.executable import Executable
from autotune.runtime.state import Runtime, Tuner

Array = TypeVar("Array")

# The widest vector a kernel loads is 16 bytes, so nothing else of an address matters to a plan.
_VECTOR = 16
# The memory of a bias that there is none of.
_NOTHING = Window(1, 0, 0)


class _Bound(NamedTuple):
    """What operands of one signature need at each call, in the order A, B, C, bias; extents in
    bytes."""

    executable: Executable
    ordinal: int
    windows: tuple[Window, Window, Window, Window]
    leading: tuple[int, int, int]
    strides: tuple[int, int, int]
    extents: tuple[int, int, int, int]


class Product:
    """`C = act(alpha op(A) op(B) + beta C + bias)` for arrays of any shape and layout.

    Operands that look as they did in an earlier call, their addresses aside, are not checked
    again.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._bound: dict[Any, _Bound] = {}

    def __call__(
        self,
        a: Any,
        b: Any,
        out: Array | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
        bias: Any = None,
        activation: str | None = None,
    ) -> Array:
        """Enqueues the product on the caller's current stream; see `autotune.runtime.matmul`."""
        framework_of = self.runtime.framework
        framework = framework_of(a, "A")
        at_a, kind_a = framework.read(a)
        at_b, kind_b = framework_of(b, "B").read(b)
        at_bias, kind_bias = (0, None) if bias is None else framework_of(bias, "bias").read(bias)
        if out is None:
            if beta:
                raise ArrayError(f"beta is {beta} but there is no out to scale; give out=")
            shape = self._shapes.get((kind_a, kind_b)) or self._shape(a, b, kind_a, kind_b)
            out = framework.empty(a, shape)
        at_c, kind_c = framework_of(out, "out").read(out)
        addresses = at_a, at_b, at_c, at_bias
        aligned = at_a % _VECTOR, at_b % _VECTOR, at_c % _VECTOR
        key = kind_a, kind_b, kind_c, kind_bias, activation, *aligned
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bound[key] = self._bind((a, b, out), bias, activation, addresses)
        size_a, size_b, size_c, size_bias = bound.extents
        end = at_c + size_c
        if (
            (at_a < end and at_c < at_a + size_a)
            or (at_b < end and at_c < at_b + size_b)
            or (at_bias < end and at_c < at_bias + size_bias)
        ):
            _refuse_overlap(bound, addresses)
        stream = framework.stream((a, b, out), bound.ordinal)
        bound.executable.run(stream, addresses, bound.leading, bound.strides, alpha, beta)
        return out

    def tune(
        self, a: Any, b: Any, tuner: Tuner, bias: Any = None, activation: str | None = None
    ) -> None:
        """Calls the tuner for the product of two arrays, unless its shape is tuned already."""
        one, other = self.runtime.describe(a, "A"), self.runtime.describe(b, "B")
        problem = self._problem(one, other, self._epilogue(bias is not None, activation))
        ordinal = arrays.check(one)
        if self.runtime.resolve(problem, ordinal).how != "exact":
            tuner(problem, self.runtime.gpu(ordinal).device)
            self.forget(problem)

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again at its next product, because it was tuned since."""
        self.runtime.forget(problem)
        self._bound.clear()

    def _epilogue(self, has_bias: bool, activation: str | None) -> str:
        return epilogue_of(has_bias, activation)

    def _problem(self, a: Operand, b: Operand, epilogue: str) -> Problem:
        return arrays.problem_of(a, b, epilogue=epilogue)

    def _config(self, problem: Problem, ordinal: int) -> Config:
        return self.runtime.answer(problem, ordinal).config

    def _shape(self, a: Any, b: Any, kind_a: Any, kind_b: Any) -> tuple[int, ...]:
        one, other = self.runtime.describe(a, "A"), self.runtime.describe(b, "B")
        shape = arrays.product_shape(one, other, arrays.problem_of(one, other))
        return self._shapes.setdefault((kind_a, kind_b), shape)

    def _bind(
        self,
        operands: tuple[Any, Any, Any],
        bias: Any,
        activation: str | None,
        addresses: tuple[int, int, int, int],
    ) -> _Bound:
        a, b, out = map(self.runtime.describe, operands, ("A", "B", "out"))
        problem = self._problem(a, b, self._epilogue(bias is not None, activation))
        ordinal = arrays.check(a)
        matrices = (
            arrays.window(a, problem.layout[0])[1],
            arrays.window(b, problem.layout[1])[1],
            arrays.check_out(out, arrays.product_shape(a, b, problem), ordinal),
        )
        added = _NOTHING
        if bias is not None:
            added = arrays.check_bias(self.runtime.describe(bias, "bias"), problem.n, ordinal)
        leading = matrices[0].leading, matrices[1].leading, matrices[2].leading
        strides = matrices[0].stride, matrices[1].stride, matrices[2].stride
        alignment = Alignment.of(leading, addresses[:3], problem.element_bytes, strides)
        config = self._config(problem, ordinal)
        executable = self.runtime.executable(config, problem, ordinal, alignment)
        windows = *matrices, added
        extents = windows[0].extent, windows[1].extent, windows[2].extent, windows[3].extent
        return _Bound(executable, ordinal, windows, leading, strides, extents)


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
        leading = _given((lda, ldb, ldc), self.problem.leading_dimensions)
        rows = self.problem.stored_rows
        dense = rows[0] * leading[0], rows[1] * leading[1], rows[2] * leading[2]
        single = self.problem.batch == 1
        strides = (0, 0, 0) if single else _given((stride_a, stride_b, stride_c), dense)
        addresses = a, b, c, bias
        aligned = a % _VECTOR, b % _VECTOR, c % _VECTOR, bias % _VECTOR
        key = leading, strides, bias == 0, *aligned
        executable = self._raw.get(key)
        if executable is None:
            self._check(addresses, leading, strides)
            alignment = Alignment.of(leading, (a, b, c), self.problem.element_bytes, strides)
            executable = self._raw[key] = self._aligned(alignment)
        executable.run(stream, addresses, leading, strides, alpha, beta)

    def _check(
        self,
        addresses: tuple[int, int, int, int],
        leading: tuple[int, int, int],
        strides: tuple[int, int, int],
    ) -> None:
        """Refuses what the problem's kernels must not get."""
        problem, element = self.problem, self.problem.element_bytes
        least = problem.leading_dimensions
        for name, ld, shortest, address in zip("ABC", leading, least, addresses[:3], strict=True):
            if ld < shortest or address % element:
                raise ArrayError(
                    f"{name} at {address:#x} has leading dimension {ld}; it takes {shortest} or "
                    f"more, and an address that is a multiple of {element}"
                )
        memory = Window(problem.m, problem.n, leading[2], problem.batch, strides[2])
        if min(strides) < 0 or not memory.disjoint:
            raise ArrayError(
                f"strides {strides} of A, B and C: none may be negative, and the {problem.batch} "
                f"matrices of C, {problem.m} rows of {problem.n} that are {leading[2]} apart, must "
                "not overlap"
            )
        if problem.has_bias != (addresses[3] != 0) or addresses[3] % element:
            raise ArrayError(
                f"bias is at {addresses[3]:#x}; {problem} takes "
                + (f"an address that is a multiple of {element}" if problem.has_bias else "none: 0")
            )

    def _epilogue(self, has_bias: bool, activation: str | None) -> str:
        return epilogue_of(has_bias, activation or self.problem.activation)

    def _problem(self, a: Operand, b: Operand, epilogue: str) -> Problem:
        own = self.problem
        problem = arrays.problem_of(a, b, own.layout, own.compute, epilogue)
        if problem != own:
            raise ArrayError(f"the operands make a product {problem}; this kernel is for {own}")
        if a.ordinal != self._ordinal:
            raise ArrayError(
                f"A is on CUDA device {a.ordinal}; this kernel is for device {self._ordinal}"
            )
        return problem

    def _config(self, problem: Problem, ordinal: int) -> Config:  # noqa: ARG002
        return self.config

    def _aligned(self, alignment: Alignment) -> Executable:
        return self.runtime.executable(self.config, self.problem, self._ordinal, alignment)


def _given(
    values: tuple[int | None, int | None, int | None], otherwise: tuple[int, int, int]
) -> tuple[int, int, int]:
    a, b, c = (
        default if value is None else value
        for value, default in zip(values, otherwise, strict=True)
    )
    return a, b, c


def _refuse_overlap(bound: _Bound, addresses: tuple[int, int, int, int]) -> None:
    out, memory = addresses[2], bound.windows[2]
    for name, address, window in zip(
        ("A", "B", "out", "bias"), addresses, bound.windows, strict=True
    ):
        if window is not memory and window.extent and arrays.overlap(address, window, out, memory):
            raise ArrayError(f"out at {out:#x} overlaps {name} at {address:#x}; give another")
