"""A fake libcublas, which multiplies in NumPy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autotune.cuda.cublaslt import CUBLAS_SIGNATURES
from support.host_cases import numbers, stored

TYPES: dict[int, Any] = {0: np.float32, 2: np.float16, 14: np.uint16}
"""The types of elements by their numbers; bfloat16 as its bits."""
HANDLE = 7


class FakeCublas:
    """The functions that are called, which return `status`.

    Attributes:
        stream: the stream that was set.
        computes: the compute types of products.
    """

    def __init__(self, status: int = 0) -> None:
        self.stream = 0
        self.computes: list[int] = []
        for name, method in zip(CUBLAS_SIGNATURES, (_create, _set_stream, _multiply), strict=True):
            setattr(self, name, self._function(method, status))

    def _function(self, method: Any, status: int) -> Any:
        def function(*arguments: Any) -> int:
            assert len(arguments) == len(called.argtypes)
            method(self, *arguments)
            return status

        called: Any = function
        return called


def _create(_: FakeCublas, handle: Any) -> None:
    ctypes.cast(handle, ctypes.POINTER(ctypes.c_void_p))[0] = HANDLE


def _set_stream(library: FakeCublas, handle: Any, stream: int) -> None:
    assert handle.value == HANDLE
    library.stream = stream


def _multiply(
    library: FakeCublas, handle: Any, trans_a: int, trans_b: int, m: int, n: int, k: int, *rest: Any
) -> None:
    alpha, beta, (batch, compute, algorithm) = rest[0], rest[9], rest[14:]
    assert (handle.value, _float(alpha), _float(beta), algorithm) == (HANDLE, 1.0, 0.0, -1)
    library.computes.append(compute)
    a, b, c = rest[1:5], rest[5:9], rest[10:14]
    left = numbers(_matrices(a, *((k, m) if trans_a else (m, k)), batch))
    right = numbers(_matrices(b, *((n, k) if trans_b else (k, n)), batch))
    left, right = (
        matrix.transpose(0, 2, 1) if transposed else matrix
        for matrix, transposed in ((left, trans_a), (right, trans_b))
    )
    kind = {0: "f32", 2: "f16", 14: "bf16"}[c[1]]
    _matrices(c, m, n, batch)[...] = stored((left @ right).astype(np.float32), kind)


def _float(pointer: Any) -> float:
    return float(ctypes.cast(pointer, ctypes.POINTER(ctypes.c_float))[0])


def _matrices(matrix: tuple[int, int, int, int], rows: int, columns: int, batch: int) -> Any:
    """Column-major matrices of a batch."""
    address, kind, leading_dimension, stride = matrix
    dtype = np.dtype(TYPES[kind])
    reach = (batch - 1) * stride + (columns - 1) * leading_dimension + rows
    memory = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(address)
    strides = [dtype.itemsize * step for step in (stride, 1, leading_dimension)]
    elements = np.ctypeslib.as_array(memory).view(dtype)
    return as_strided(elements, (batch, rows, columns), strides)
