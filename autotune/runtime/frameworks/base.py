"""What the run time asks of an array library."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime.arrays import Operand


class Framework(Protocol):
    """One array library.

    `read` is made for every array of every call and so gives no more than has to be looked at:
    the address, and a signature in the library's own terms. Two arrays with the same signature
    have the same description by `describe`.
    """

    def read(self, array: Any) -> tuple[int, Hashable]: ...

    def describe(self, array: Any, name: str) -> Operand: ...

    def records(self, a: Any, b: Any, out: Any, bias: Any) -> bool:
        """Whether it would have to differentiate through a product of its arrays."""
        ...

    def exports(self, kind: type) -> bool:
        """Whether all that a product depends on can be read of such arrays through the DLPack C
        exchange API, if they have one, besides `records`."""
        ...

    def stream(self, arrays: Sequence[Any], ordinal: int) -> int:
        """The handle of the caller's current stream on a device (0: the default stream)."""
        ...

    def empty(self, like: Any, shape: tuple[int, ...], wide: bool) -> Any:
        """A new row-major array beside another, of its type, or fp32 if it is to be `wide`."""
        ...

    def multiply(self, product: Given) -> bool:
        """Enqueues a product by the vendor's library, if the framework has it as fast and as
        accurate as `gpu.baseline` timed it; else false, and nothing was done."""
        ...


@dataclass(frozen=True)
class Given:
    """A product of arrays of one framework: `out = act(alpha a b + beta out + bias)`.

    Attributes:
        problem: what it is; its layout says how a and b lie.
        a: (m, k) or (batch, m, k).
        b: (k, n) or (batch, k, n).
        out: (m, n) or (batch, m, n).
        alpha: factor of the product.
        beta: factor of what `out` holds.
        bias: (n,) or None.
    """

    problem: Problem
    a: Any
    b: Any
    out: Any
    alpha: float
    beta: float
    bias: Any

    @property
    def plain(self) -> bool:
        """Whether it is `out = a b` alone."""
        scaled = self.alpha != 1 or self.beta != 0
        return not scaled and self.problem.epilogue == "none"


def elements(strides: Sequence[int], itemsize: int, name: str) -> tuple[int, ...]:
    """Strides in elements of those in bytes.

    Raises:
        ArrayError: if they are no whole elements; `name` is what it calls the array.
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
