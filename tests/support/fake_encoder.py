"""A fake of the driver's encoder of tensor maps, which records its arguments."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from autotune.cuda.launches import ALIGNMENT, BYTES

WORD_1 = 2**64 - 1


class Encoded(NamedTuple):
    """The arguments of `cuTensorMapEncodeTiled`."""

    type: int
    rank: int
    address: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    interleave: int
    swizzle: int
    promotion: int
    fill: int


class FakeEncoder:
    """A driver whose `cuGetProcAddress` returns a fake encoder.

    The first word of an encoding is the number of the call, from 0; the second is all ones.

    Attributes:
        calls: the arguments of each call.
        status: the status it returns.
    """

    def __init__(self) -> None:
        self.calls: list[Encoded] = []
        self.status = 0
        self.answer(self._encode)

    def answer(self, encode: Callable[..., int]) -> None:
        """Replaces the encoder by a function."""
        integer, pointer = ctypes.c_int, ctypes.c_void_p
        function = ctypes.CFUNCTYPE(
            integer, pointer, integer, ctypes.c_uint32, *[pointer] * 5, *[integer] * 4
        )
        self._function = function(encode)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        assert (name, flags) == (b"cuTensorMapEncodeTiled", 0)
        assert version == 12000
        return 0, ctypes.cast(self._function, ctypes.c_void_p).value, 0

    def _encode(self, to: int, kind: int, rank: int, address: int, *rest: int) -> int:
        assert to % ALIGNMENT == 0
        extents, strides, box, steps, *options = rest
        self.calls.append(
            Encoded(
                *(kind, rank, address),
                _array(ctypes.c_uint64, rank, extents),
                _array(ctypes.c_uint64, rank - 1, strides),
                _array(ctypes.c_uint32, rank, box),
                _array(ctypes.c_uint32, rank, steps),
                *options,
            )
        )
        content = struct.pack("<QQ", len(self.calls) - 1, WORD_1).ljust(BYTES, b"\x5a")
        ctypes.memmove(to, content, BYTES)
        return self.status


def _array(kind: Any, count: int, address: int) -> tuple[int, ...]:
    return tuple((kind * count).from_address(address))
