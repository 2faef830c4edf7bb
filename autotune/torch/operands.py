"""What the operator asks of its operands, also of those without memory and with symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch

from autotune.errors import ArrayError
from autotune.problem import Problem, epilogue_of
from autotune.runtime import arrays

DTYPES = {getattr(torch, name): own for name, own in arrays.TYPES.items() if hasattr(torch, name)}
"""What the kernels take, and what computes call it."""


def product_shape(
    a: Any, b: Any, bias: Any = None, activation: str | None = None, compute: str | None = None
) -> tuple[Any, ...]:
    """The shape of `act(a b + bias)`, with a batch if one of the operands has such an axis.

    The rules are those of `autotune.matmul`, but that sizes may be 0, any strides will do,
    and what is not on a GPU may be of any floating type.

    Raises:
        ArrayError: if the operands do not fit each other, or are of a type that no kernel takes.
        ProblemError: for an unknown activation or compute.
    """
    for name, one in (("A", a), ("B", b)):
        if one.dim() not in (2, 3):
            raise ArrayError(
                f"{name} has {one.dim()} dimensions {tuple(one.shape)}; give a matrix or a batch "
                "of them"
            )
    _check_type(a, compute)
    _check_alike("A", a, "B", b)
    k, inner = a.shape[-1], b.shape[-2]
    if k != inner:
        raise ArrayError(
            f"A {tuple(a.shape)} times B {tuple(b.shape)}: the inner sizes {k} and {inner} differ"
        )
    epilogue_of(bias is not None, activation)
    n = b.shape[-1]
    if bias is not None:
        _check_alike("A", a, "bias", bias)
        if bias.dim() != 1 or bias.shape[0] != n:
            raise ArrayError(
                f"bias is {tuple(bias.shape)}; the product has {n} columns: give {(n,)}"
            )
    return *_batch(a, b), a.shape[-2], n


def readable(tensor: Any, name: str) -> Any:
    """The tensor, or a row-major copy where its strides are such that no kernel reads it."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    try:
        arrays.memory_of(arrays.Operand(name, shape, strides, dtype, tensor.device.index))
    except ArrayError:
        return tensor.contiguous()
    return tensor


def _check_type(a: Any, compute: str | None) -> None:
    own = DTYPES.get(a.dtype)
    if own is None and (a.is_cuda or not a.is_floating_point()):
        raise ArrayError(
            f"A is {_name(a.dtype)}; the kernels take {', '.join(arrays.TYPES)}: convert it"
        )
    if compute is None:
        return
    wanted = Problem(1, 1, 1, compute).precision.operand
    if own not in (wanted.name, None):
        raise ArrayError(
            f"A and B are {_name(a.dtype)}; {compute} multiplies {wanted.dtype}: convert them or "
            f"give compute={own!r}"
        )


def _check_alike(name: str, one: Any, other_name: str, other: Any) -> None:
    if one.device != other.device:
        raise ArrayError(
            f"{name} is on {one.device}, {other_name} on {other.device}; move one of them"
        )
    if one.dtype != other.dtype:
        raise ArrayError(
            f"{name} is {_name(one.dtype)}, {other_name} {_name(other.dtype)}; convert one of them"
        )


def _batch(a: Any, b: Any) -> tuple[Any, ...]:
    """The batch axis of the product, if it has one."""
    counts = [one.shape[0] for one in (a, b) if one.dim() == 3]
    if len(counts) == 2 and counts[0] != counts[1] and 1 not in counts:
        raise ArrayError(
            f"A {tuple(a.shape)} times B {tuple(b.shape)}: the batches {counts[0]} and "
            f"{counts[1]} differ"
        )
    # Of two, one may be 1; of them the other counts, also if it is 0.
    if len(counts) == 2:
        return (counts[1] if counts[0] == 1 else counts[0],)
    return tuple(counts)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
