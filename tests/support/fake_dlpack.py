"""A fake DLPack C exchange API over NumPy arrays, in `ctypes`."""

from __future__ import annotations

import ctypes
from typing import Any

from support.numpy_types import name_of

# DLDataTypeCode of dlpack.h 1.1.
CODES = {
    "float32": (2, 32),
    "float16": (2, 16),
    "bfloat16": (4, 16),
    "float8_e4m3fn": (10, 8),
    "float8_e5m2": (12, 8),
    "int8": (0, 8),
    "int32": (0, 32),
}
CUDA = 2


class DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


READ = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DLTensor))
STREAM = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class Exchange:
    """The exchange API of a library whose arrays have a NumPy array as `host`.

    Attributes:
        stream: the current stream of the library.
        refuses: whether reading any array fails.
        reads: number of arrays read.
    """

    def __init__(self) -> None:
        self.stream, self.refuses, self.reads = 0, False, 0
        self._functions = READ(self._read), STREAM(self._work_stream)
        self._kept: dict[int, Any] = {}
        addresses = (ctypes.cast(function, ctypes.c_void_p).value for function in self._functions)
        self.table = (ctypes.c_void_p * 7)(1 | 3 << 32, None, None, None, None, *addresses)

    @property
    def capsule(self) -> Any:
        """The capsule for `__dlpack_c_exchange_api__`."""
        new = ctypes.pythonapi.PyCapsule_New
        new.restype = ctypes.py_object
        new.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
        return new(ctypes.addressof(self.table), b"dlpack_exchange_api", None)

    def _read(self, array: Any, out: Any) -> int:
        self.reads += 1
        if self.refuses:
            return -1
        host, seen = array.host, out[0]
        seen.data, seen.device_type, seen.device_id = host.ctypes.data, CUDA, array.device.index
        seen.ndim, seen.lanes, seen.byte_offset = host.ndim, 1, 0
        seen.code, seen.bits = CODES[name_of(host)]
        sizes = (ctypes.c_int64 * host.ndim)(*host.shape)
        steps = (ctypes.c_int64 * host.ndim)(*(stride // host.itemsize for stride in host.strides))
        self._kept[id(array)] = sizes, steps
        integers = ctypes.POINTER(ctypes.c_int64)
        seen.shape, seen.strides = ctypes.cast(sizes, integers), ctypes.cast(steps, integers)
        return 0

    def _work_stream(self, kind: int, _: int, out: Any) -> int:
        assert kind == CUDA
        out[0] = self.stream
        return 0
