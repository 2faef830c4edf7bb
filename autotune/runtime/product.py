"""Products of arrays: what is checked and found out once, and what is left for each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from autotune.config import Config
from autotune.errors import ArrayError
from autotune.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays
from autotune.runtime.arrays import Operand, Window
from autotune.runtime.executable import Executable
from autotune.runtime.state import Runtime, Tuner

Array = TypeVar("Array")
Four = tuple[int, int, int, int]
"""Of A, B, C and the bias."""
Operands = tuple[Operand, Operand, Operand | None]
"""A, B and, if there is one yet, C."""

_OPERANDS = "A", "B", "out", "bias"

VECTOR = 16
"""Bytes of the widest vector a kernel loads: nothing else of an address matters to a plan."""

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
    extents: Four


class Product:
    """`C = act(alpha op(A) op(B) + beta C + bias)` for arrays of any shape and layout.

    Operands that look as they did in an earlier call, their addresses aside, are not checked
    again.
    """

    # Whether the outputs that it allocates are fp32, whatever A and B are.
    _wide = False

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
        compute: str | None = None,
    ) -> Array:
        """Enqueues the product on the caller's current stream; see `autotune.runtime.matmul`."""
        framework_of = self.runtime.framework
        framework, same = framework_of(a, "A"), type(a)
        at_a, kind_a = framework.read(a)
        at_b, kind_b = (framework if type(b) is same else framework_of(b, "B")).read(b)
        at_bias, kind_bias = (0, None) if bias is None else framework_of(bias, "bias").read(bias)
        if out is None:
            if beta:
                raise ArrayError(f"beta is {beta} but there is no out to scale; give out=")
            shape = self._shapes.get((kind_a, kind_b)) or self._shape(a, b, kind_a, kind_b)
            out = framework.empty(a, shape, self._wide)
        at_c, kind_c = (framework if type(out) is same else framework_of(out, "out")).read(out)
        addresses = at_a, at_b, at_c, at_bias
        aligned = at_a % VECTOR, at_b % VECTOR, at_c % VECTOR
        key = kind_a, kind_b, kind_c, kind_bias, activation, compute, *aligned
        bound = self._bound.get(key)
        if bound is None:
            bound = self._bind((a, b, out, bias), activation, compute, addresses)
            self._bound[key] = bound
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
        self,
        a: Any,
        b: Any,
        tuner: Tuner,
        bias: Any = None,
        activation: str | None = None,
        compute: str | None = None,
        out: Any = None,
    ) -> None:
        """Calls the tuner for the product of two arrays, unless its shape is tuned already."""
        describe = self.runtime.describe
        written = None if out is None else describe(out, "out")
        operands = describe(a, "A"), describe(b, "B"), written
        problem = self._problem(operands, self._epilogue(bias is not None, activation), compute)
        ordinal = arrays.check(operands[0])
        if self.runtime.resolve(problem, ordinal).how != "exact":
            tuner(problem, self.runtime.gpu(ordinal).device)
            self.forget(problem)

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again at its next product, because it was tuned since."""
        self.runtime.forget(problem)
        self._bound.clear()

    def _epilogue(self, has_bias: bool, activation: str | None) -> str:
        return epilogue_of(has_bias, activation)

    def _problem(self, operands: Operands, epilogue: str, compute: str | None) -> Problem:
        return arrays.problem_of(*operands, compute=compute, epilogue=epilogue)

    def _config(self, problem: Problem, ordinal: int) -> Config:
        return self.runtime.answer(problem, ordinal).config

    def _shape(self, a: Any, b: Any, kind_a: Any, kind_b: Any) -> tuple[int, ...]:
        one, other = self.runtime.describe(a, "A"), self.runtime.describe(b, "B")
        shape = arrays.product_shape(one, other, arrays.problem_of(one, other))
        return self._shapes.setdefault((kind_a, kind_b), shape)

    def _bind(
        self,
        operands: tuple[Any, Any, Any, Any],
        activation: str | None,
        compute: str | None,
        addresses: Four,
    ) -> _Bound:
        *matrices, bias = operands
        a, b, out = map(self.runtime.describe, matrices, ("A", "B", "out"))
        epilogue = self._epilogue(bias is not None, activation)
        problem = self._problem((a, b, out), epilogue, compute)
        ordinal = arrays.check(a)
        window_a, window_b = (
            arrays.window(one, letter)[1]
            for one, letter in zip((a, b), problem.layout, strict=True)
        )
        window_c = arrays.check_out(out, arrays.product_shape(a, b, problem), ordinal)
        added = _NOTHING
        if bias is not None:
            described = self.runtime.describe(bias, "bias")
            added = arrays.check_bias(described, problem.n, ordinal, out.dtype)
        leading = window_a.leading, window_b.leading, window_c.leading
        strides = window_a.stride, window_b.stride, window_c.stride
        windows = window_a, window_b, window_c, added
        _check_addresses(addresses, windows)
        alignment = Alignment.of(leading, addresses[:3], arrays.sizes(problem), strides)
        config = self._config(problem, ordinal)
        executable = self.runtime.executable(config, problem, ordinal, alignment)
        extents = window_a.extent, window_b.extent, window_c.extent, added.extent
        return _Bound(executable, ordinal, windows, leading, strides, extents)


def _check_addresses(addresses: Four, windows: Sequence[Window]) -> None:
    """Refuses operands that begin between their elements."""
    for name, address, window in zip(_OPERANDS, addresses, windows, strict=True):
        if address % window.element_bytes:
            raise ArrayError(
                f"{name} is at {address:#x}, no multiple of its {window.element_bytes}-byte "
                "elements: copy it"
            )


def _refuse_overlap(bound: _Bound, addresses: Four) -> None:
    out, memory = addresses[2], bound.windows[2]
    for name, address, window in zip(_OPERANDS, addresses, bound.windows, strict=True):
        if window is not memory and window.extent and arrays.overlap(address, window, out, memory):
            raise ArrayError(f"out at {out:#x} overlaps {name} at {address:#x}; give another")
