"""Products of arrays: what is checked and found out once, and what is left for each call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays
from autotune.runtime.arrays import Operand, Window
from autotune.runtime.executable import Placed
from autotune.runtime.frameworks import Given
from autotune.runtime.native import Native
from autotune.runtime.state import TUNED, Runtime, Tuner

Array = TypeVar("Array")
Four = tuple[int, int, int, int]
"""Of A, B, C and the bias."""
Operands = tuple[Operand, Operand, Operand | None]
"""A, B and, if there is one yet, C."""

Arrays = tuple[Any, Any, Any, Any]
"""A, B, C and a bias or None."""

OPERANDS = "A", "B", "out", "bias"

VECTOR = 16
"""Bytes of the widest vector a kernel loads: nothing else of an address matters to a plan."""

KEPT_CALLS = 4096
"""Calls whose packed arguments are kept, about a kilobyte each; then all are made anew."""

# The memory of a bias that there is none of.
_NOTHING = Window(1, 0, 0)


class _Bound(NamedTuple):
    """What operands of one signature pose, in the order A, B, C, bias; `vendor`: whether the
    vendor's library is to multiply them."""

    problem: Problem
    ordinal: int
    windows: tuple[Window, Window, Window, Window]
    leading: tuple[int, int, int]
    strides: tuple[int, int, int]
    alignment: Alignment
    vendor: bool


class BoundGemm:
    """`C = act(alpha op(A) op(B) + beta C + bias)` for arrays of any shape and layout.

    Operands that look as they did in an earlier call are not checked again, and where they lie
    where they lay, too, the arguments of the launches are those of that call.
    """

    # Whether the outputs that it allocates are fp32, whatever A and B are.
    _wide = False

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._shapes: dict[Any, tuple[int, ...]] = {}
        self._bound: dict[Any, _Bound] = {}
        self._calls: dict[Any, Placed] = {}
        self._native = Native(runtime.driver)

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
        vendor: bool = True,
    ) -> Array:
        """Enqueues the product on the caller's current stream; see `autotune.matmul`."""
        if out is None:
            if beta:
                raise ArrayError(f"beta is {beta} but there is no out to scale; give out=")
            shape = self._shape(a, b)
            out = self.runtime.framework(a, "A").empty(a, shape, self._wide)
        rest = alpha, beta, activation, compute, vendor, bias is None
        native = self._native.kinds.get(type(a))
        placed: Placed | None = None
        if native is not None and not native.records(a, b, out, bias):
            known = native.made(a, b, out, bias, rest)
            if known is True:
                return out
            placed = known or None
        if placed is None:
            placed = self._found((a, b, out, bias), rest)
        if placed is not None:
            stream = self.runtime.framework(a, "A").stream((a, b, out), placed.ordinal)
            placed.enqueue(stream)
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
        if self.runtime.resolve(problem, ordinal).how not in TUNED:
            tuner(problem, self.runtime.gpu(ordinal).device)
            self.forget(problem)

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again at its next product, because it was tuned since."""
        self.runtime.forget(problem)
        self._bound.clear()
        self._calls.clear()
        self._native.forget()

    def _epilogue(self, has_bias: bool, activation: str | None) -> str:
        return epilogue_of(has_bias, activation)

    def _problem(self, operands: Operands, epilogue: str, compute: str | None) -> Problem:
        return arrays.problem_of(*operands, compute=compute, epilogue=epilogue)

    def _config(self, problem: Problem, ordinal: int) -> Config:
        return self.runtime.answer(problem, ordinal).config

    def _vendor(self, problem: Problem, ordinal: int) -> bool:
        """Whether the vendor's library was measured to be the faster."""
        return self.runtime.answer(problem, ordinal).vendor

    def _shape(self, a: Any, b: Any) -> tuple[int, ...]:
        """Of the product of two arrays."""
        one, other = self.runtime.framework(a, "A"), self.runtime.framework(b, "B")
        kinds = one.read(a)[1], other.read(b)[1]
        shape = self._shapes.get(kinds)
        if shape is None:
            first, second = one.describe(a, "A"), other.describe(b, "B")
            problem = arrays.problem_of(first, second)
            shape = self._shapes[kinds] = arrays.product_shape(first, second, problem)
        return shape

    def _found(self, operands: Arrays, rest: tuple[Any, ...]) -> Placed | None:
        """What enqueues a product; None if the vendor's library has multiplied."""
        seen = [
            None if one is None else self.runtime.framework(one, name).read(one)
            for one, name in zip(operands, OPERANDS, strict=True)
        ]
        key = *seen, *rest
        placed = self._calls.get(key)
        if placed is None:
            *_, vendor, _ = rest
            bound = self._checked(key, operands)
            if vendor and bound.vendor:
                # Not kept: the settings of the framework decide each time.
                multiplied = self._multiplied(bound.problem, operands, *rest[:2])
                return None if multiplied else self._placed(key, bound)
            placed = self._placed(key, bound)
            if len(self._calls) >= KEPT_CALLS:
                self._calls.clear()
            self._calls[key] = placed
        # Also what is only found again: machine code forgets by itself.
        self._keep_natively(operands, rest, placed)
        return placed

    def _keep_natively(self, operands: Arrays, rest: tuple[Any, ...], placed: Placed) -> None:
        """Has machine code know a call, if it can read all of its arrays."""
        kinds = self._native.kinds
        for one in operands:
            if one is not None and type(one) not in kinds:
                self._native.serve(self.runtime.framework(one, "A"), type(one))
        native = kinds[type(operands[0])]
        if native is not None:
            native.keep(*operands, rest, placed)

    def _checked(self, key: tuple[Any, ...], operands: Arrays) -> _Bound:
        """What the operands of a call that was not made before pose."""
        *seen, _, _, activation, compute, _, _ = key
        addresses = _addresses(seen)
        kinds = tuple(one and one[1] for one in seen)
        aligned = tuple(address % VECTOR for address in addresses[:3])
        signature = *kinds, activation, compute, *aligned
        bound = self._bound.get(signature)
        if bound is None:
            bound = self._bind(operands, activation, compute, addresses)
            self._bound[signature] = bound
        _refuse_overlap(bound, addresses)
        return bound

    def _placed(self, key: tuple[Any, ...], bound: _Bound) -> Placed:
        """What enqueues a call that was checked."""
        *seen, alpha, beta, _, _, _, _ = key
        config = self._config(bound.problem, bound.ordinal)
        executable = self.runtime.executable(config, bound.problem, bound.ordinal, bound.alignment)
        return executable.bound(_addresses(seen), bound.leading, bound.strides, alpha, beta)

    def _multiplied(self, problem: Problem, operands: Arrays, alpha: float, beta: float) -> bool:
        """Whether the framework of all operands has multiplied them by the vendor's library."""
        a, b, out, bias = operands
        first = self.runtime.framework(a, "A")
        others = (self.runtime.framework(one, "B") for one in operands[1:] if one is not None)
        if any(type(one) is not type(first) for one in others):
            return False
        return first.multiply(Given(problem, a, b, out, alpha, beta, bias))

    def _bind(
        self, operands: Arrays, activation: str | None, compute: str | None, addresses: Four
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
        vendor = self._vendor(problem, ordinal)
        return _Bound(problem, ordinal, windows, leading, strides, alignment, vendor)


def _addresses(seen: Sequence[tuple[int, Any] | None]) -> Four:
    """Of A, B, C and the bias as they were read; 0 for no bias."""
    a, b, c, bias = (0 if one is None else one[0] for one in seen)
    return a, b, c, bias


def _check_addresses(addresses: Four, windows: Sequence[Window]) -> None:
    """Refuses operands that begin between their elements."""
    for name, address, window in zip(OPERANDS, addresses, windows, strict=True):
        if address % window.element_bytes:
            raise ArrayError(
                f"{name} is at {address:#x}, no multiple of its {window.element_bytes}-byte "
                "elements: copy it"
            )


def _refuse_overlap(bound: _Bound, addresses: Four) -> None:
    out, memory = addresses[2], bound.windows[2]
    for name, address, window in zip(OPERANDS, addresses, bound.windows, strict=True):
        if window is not memory and window.extent and arrays.overlap(address, window, out, memory):
            raise ArrayError(f"out at {out:#x} overlaps {name} at {address:#x}; give another")
