"""A fake libcublasLt, which multiplies in NumPy on host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from autotune.measure.oracle import activated
from support.numpy_types import STORED, decoded, encoded, name_of

TYPES = {0: "float32", 2: "float16", 14: "bfloat16"}
"""Element types by their cudaDataType_t."""
HANDLE, INVALID = 7, 15
ROWS, BATCH, STRIDE = 2, 5, 6
_MATMUL = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 14, ctypes.c_size_t, ctypes.c_void_p)


class FakeCublasLt:
    """The functions of the library that a product takes.

    An algorithm takes 4096 bytes of workspace for each part of K beyond the first, and rows of
    multiples of 8 elements if its number is 8.

    Attributes:
        version: the version it states.
        products: the algorithm's number, the stream and the address of the workspace of each
            product.
        status: the status of products.
    """

    def __init__(self, version: int = 130000) -> None:
        self.version, self.status = version, 0
        self.products: list[tuple[int, int | None, int | None]] = []
        self._held: dict[int, Any] = {}
        self._matmul = _MATMUL(self._multiply)

    def __getitem__(self, name: str) -> Any:
        name = name.removeprefix("cublasLt")
        if name == "Matmul":
            return self._matmul
        return _Function(getattr(self, f"_{name}", lambda *_: 0))

    @property
    def cublasLtGetVersion(self) -> Any:
        return _Function(lambda: self.version)

    def _make(self, made: Any, held: Any) -> int:
        number = 1000 + len(self._held)
        self._held[number] = held
        made._obj.value = number
        return 0

    def _Create(self, made: Any) -> int:
        made._obj.value = HANDLE
        return 0

    def _MatmulDescCreate(self, made: Any, compute: int, _scale: int) -> int:
        return self._make(made, {"compute": compute})

    def _MatmulDescSetAttribute(self, holder: Any, number: int, value: Any, size: int) -> int:
        self._held[holder.value][number] = int.from_bytes(bytes(value._obj)[:size], "little")
        return 0

    def _MatrixLayoutCreate(self, made: Any, kind: int, rows: int, columns: int, ld: int) -> int:
        return self._make(made, {"matrix": (kind, rows, columns, ld), BATCH: 1, STRIDE: 0})

    _MatrixLayoutSetAttribute = _MatmulDescSetAttribute

    def _MatmulDescDestroy(self, number: int) -> int:
        del self._held[number]
        return 0

    _MatrixLayoutDestroy = _MatmulDescDestroy

    def _MatmulAlgoInit(self, _handle: Any, *numbers: Any) -> int:
        *_, number, made = numbers
        made._obj[0] = number
        return 0

    def _MatmulAlgoConfigSetAttribute(self, made: Any, number: int, value: Any, _: int) -> int:
        if number == 2:
            made._obj[1] = value._obj.value
        return 0

    def _MatmulAlgoCheck(self, _handle: Any, _description: Any, *rest: Any) -> int:
        *layouts, algorithm, result = rest
        number, parts = algorithm._obj[0], algorithm._obj[1]
        result._obj.workspace = 4096 * (parts - 1)
        pitches = [self._held[layout.value]["matrix"][3] for layout in layouts]
        return INVALID if number == 8 and any(pitch % 8 for pitch in pitches) else 0

    def _multiply(self, *words: Any) -> int:
        """`cublasLtMatmul`, called from machine code."""
        _, description, alpha, b, of_b, a, of_a, beta, c, of_c, d, of_d = words[:12]
        algorithm, workspace, size, stream = words[12:]
        number = ctypes.c_uint64.from_address(algorithm).value
        self.products.append((number, stream, workspace))
        if self.status:
            return self.status
        assert (c, of_c, bool(workspace)) == (d, of_d, size > 0)
        told = self._held[description]
        left = self._matrices(b, of_b, bool(told[3]))
        right = self._matrices(a, of_a, bool(told[4]))
        out = self._matrices(c, of_c, False)
        factor, kept = (ctypes.c_float.from_address(at).value for at in (alpha, beta))
        result = factor * (decoded(left) @ decoded(right))
        if kept:
            result += kept * decoded(out)
        if told[7] & 4:
            kind = np.dtype(STORED[TYPES[told[26]]])
            memory = (ctypes.c_uint8 * (out.shape[1] * kind.itemsize)).from_address(told[8])
            result += decoded(np.ctypeslib.as_array(memory).view(kind))[:, None]
        if told[7] & 2:
            result = activated(result, "relu")
        out[:] = encoded(result, name_of(out))
        return 0

    def _matrices(self, address: int, layout: int, transposed: bool) -> Any:
        """Column-major matrices of a batch."""
        held = self._held[layout]
        kind, rows, columns, ld = held["matrix"]
        batch, stride = held[BATCH], held[STRIDE]
        dtype = np.dtype(STORED[TYPES[kind]])
        reach = (batch - 1) * stride + (columns - 1) * ld + rows
        memory = (ctypes.c_uint8 * (reach * dtype.itemsize)).from_address(address)
        steps = [dtype.itemsize * step for step in (stride, 1, ld)]
        elements = np.ctypeslib.as_array(memory).view(dtype)
        matrices = as_strided(elements, (batch, rows, columns), steps)
        return matrices.transpose(0, 2, 1) if transposed else matrices


class _Function:
    """A function of the library, which takes attributes as those of `ctypes` do."""

    def __init__(self, function: Callable[..., int]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> int:
        return self._function(*arguments)
