"""Checks the operands of the operator, including fake ones and those with symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch

from autotune.errors import ArrayError, ProblemError
from autotune.problem import ELEMENT_TYPES, GATE_SPAN, SWIGLU, Problem, epilogue_of
from autotune.runtime import arrays
from autotune.runtime.batches import batch_shape

DTYPES = {
    getattr(torch, name): own
    for name, own in arrays.TYPES.items()
    if ELEMENT_TYPES[own].bytes > 1 and hasattr(torch, name)
}
"""The element types that the operator multiplies, by PyTorch's dtypes. Those of 8 bits, which need
scales, are for `scaled_mm`."""


def result_shape(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    residual: Any = None,
) -> tuple[Any, ...]:
    """The shape of `act(a b + bias) + residual`, with the batch axes that an operand has.

    The rules are those of `autotune.matmul`, except that strides do not matter, and operands that
    are not on a GPU may have any floating-point type.

    Raises:
        ArrayError: if the operands do not fit each other, or no kernel takes their type.
        ProblemError: for an unknown activation or compute.
    """
    for name, operand in (("A", a), ("B", b)):
        if operand.dim() < 2:
            raise ArrayError(
                f"{name} has {operand.dim()} dimensions {tuple(operand.shape)}; give a matrix or a "
                "batch of them"
            )
    _check_type(a, compute)
    _check_same("A", a, "B", b)
    k, inner = a.shape[-1], b.shape[-2]
    if k != inner:
        raise ArrayError(
            f"A {tuple(a.shape)} times B {tuple(b.shape)}: the inner sizes {k} and {inner} differ"
        )
    epilogue_of(bias is not None, activation, residual is not None)
    n = b.shape[-1]
    if bias is not None:
        _check_same("A", a, "bias", bias)
        if bias.dim() != 1 or bias.shape[0] != n:
            raise ArrayError(
                f"bias is {tuple(bias.shape)}; the product has {n} columns: give {(n,)}"
            )
    shape = *_batch(a, b), a.shape[-2], width_of(n, activation)
    if residual is not None:
        _check_same("A", a, "residual", residual)
        if tuple(residual.shape) != shape:
            raise ArrayError(f"residual is {tuple(residual.shape)}; the product is {shape}")
    return shape


def width_of(n: Any, activation: str | None) -> Any:
    """The columns of the result of a product of `n` columns.

    Raises:
        ProblemError: for `swiglu` of columns that are no whole pairs.
    """
    if activation != SWIGLU:
        return n
    if n % (2 * GATE_SPAN):
        raise ProblemError(
            f"{SWIGLU} takes {GATE_SPAN} columns of gates and {GATE_SPAN} of what they are for; B "
            f"has {n}: make it by autotune.interleave"
        )
    return n // 2


def readable(tensor: Any, name: str) -> Any:
    """The tensor, or a row-major copy if no kernel can read its strides."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    shape, strides = tuple(tensor.shape), tuple(tensor.stride())
    try:
        arrays.memory_of(arrays.ArrayInfo(name, shape, strides, dtype, tensor.device.index))
    except ArrayError:
        return tensor.contiguous()
    return tensor


def contiguous(*tensors: Any) -> tuple[Any, ...]:
    """Row-major tensors in place of those with other strides; None for those that are absent."""
    return tuple(None if tensor is None else tensor.contiguous() for tensor in tensors)


def _check_type(a: Any, compute: str | None) -> None:
    type = DTYPES.get(a.dtype)
    if type is None and (a.is_cuda or not a.is_floating_point()):
        raise ArrayError(
            f"A is {_name(a.dtype)}; the kernels take {', '.join(map(_name, DTYPES))}: convert it"
        )
    if compute is None:
        return
    wanted = Problem(1, 1, 1, compute).precision.operand
    if type not in (wanted.name, None):
        raise ArrayError(
            f"A and B are {_name(a.dtype)}; {compute} multiplies {wanted.dtype}: convert them or "
            f"give compute={type!r}"
        )


def _check_same(name: str, tensor: Any, second_name: str, second: Any) -> None:
    """Refuses two operands on different devices or of different types."""
    if tensor.device != second.device:
        raise ArrayError(
            f"{name} is on {tensor.device}, {second_name} on {second.device}; move one of them"
        )
    if tensor.dtype != second.dtype:
        types = f"{name} is {_name(tensor.dtype)}, {second_name} {_name(second.dtype)}"
        raise ArrayError(f"{types}; convert one of them")


def _batch(a: Any, b: Any) -> tuple[Any, ...]:
    """The batch axes of the result."""
    if a.dim() == 2 or b.dim() == 2:  # nothing to compare, also of symbolic sizes
        return (*a.shape[:-2], *b.shape[:-2])
    first, second = (
        arrays.ArrayInfo(name, tuple(tensor.shape), (), "", None)
        for name, tensor in (("A", a), ("B", b))
    )
    return batch_shape(first, second)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
