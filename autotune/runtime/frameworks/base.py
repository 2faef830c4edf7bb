"""The interface that the runtime needs from an array library."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime.arrays import ArrayInfo


class Framework(Protocol):
    """One array library.

    `read` runs for every array of every call, so it returns only the address and a signature in
    the library's own terms. Two arrays with the same signature have the same description by
    `describe`.
    """

    def read(self, array: Any) -> tuple[int, Hashable]: ...

    def describe(self, array: Any, name: str) -> ArrayInfo: ...

    def records_gradient(self, *arrays: Any) -> bool:
        """Whether the library would have to differentiate through a matmul of these arrays."""
        ...

    def exports(self, kind: type) -> bool:
        """Whether the DLPack C exchange API, if arrays of this type have it, tells everything that
        a matmul depends on besides `records_gradient` and `negated`."""
        ...

    @property
    def negated(self) -> Callable[[Any], bool] | None:
        """Tells whether the memory of an array that `exports` has the other sign; None if none
        does."""
        ...

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:
        """The handle of the caller's current stream on a device (0: the default stream)."""
        ...

    def empty(self, like: Any, shape: tuple[int, ...], dtype: str | None = None) -> Any:
        """A new row-major array on the device of `like`, of its type or of the named one, such as
        `float32`."""
        ...

    def vendor_gemm(self, call: GemmCall) -> bool:
        """Enqueues a gemm by the vendor's library, if the framework offers it as fast and as
        accurate as `gpu.baseline` timed it. Otherwise returns False and does nothing."""
        ...


@dataclass(frozen=True)
class GemmCall:
    """A gemm of arrays of one framework:
    `out = act(alpha scale_a a scale_b b + beta out + bias) + residual`.

    Attributes:
        problem: its sizes and precision; the layout says how a and b are stored.
        arrays: the operands by their names in `OPERANDS`: `a`, (m, k) or (batch, m, k); `b`,
            (k, n) or (batch, k, n); `c`, (m, n) or (batch, m, n), which is `out`; and those that
            the problem has besides.
        alpha: factor of a b.
        beta: factor of the previous contents of `out`.
    """

    problem: Problem
    arrays: Mapping[str, Any]
    alpha: float
    beta: float

    @property
    def plain(self) -> bool:
        """Whether it is `out = a b` alone."""
        scaled = self.alpha != 1 or self.beta != 0
        return not scaled and self.problem.epilogue == "none"


def in_elements(strides: Sequence[int], itemsize: int, name: str) -> tuple[int, ...]:
    """Strides in elements, from strides in bytes.

    Raises:
        ArrayError: if a stride is not a whole number of elements; it calls the array `name`.
    """
    if any(stride % itemsize for stride in strides):
        raise ArrayError(
            f"{name} has strides of {tuple(strides)} bytes, not multiples of its {itemsize}-byte "
            "elements: copy it"
        )
    return tuple(stride // itemsize for stride in strides)


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))
