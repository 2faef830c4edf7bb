"""Packs the arguments of a launch into memory, with the array of pointers the driver takes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from autotune.driver.tensor_maps import ALIGNMENT, BYTES
from autotune.families.plan import Argument, ArgumentType, TensorMap

Values = Mapping[str, float]
"""The values of the symbols in a plan: `a`, `lda`, `alpha` and so on."""
Encode = Callable[[TensorMap, Values], bytes]
"""Encodes a tensor map for these values."""

# Arguments lie as in a C struct. Tensor maps come first, at multiples of 64 bytes.
FORMATS: Mapping[ArgumentType, str] = {
    "tensor_map": f"{BYTES}s",
    **{"pointer": "P", "f32": "f", "f64": "d"},
    **{"i8": "b", "i16": "h", "i32": "i", "i64": "q"},
    **{"u8": "B", "u16": "H", "u32": "I", "u64": "Q"},
}


@dataclass(frozen=True)
class PackedArguments:
    """Arguments in memory, valid for as long as this object lives.

    Attributes:
        pointers: pointers to the arguments, in order.
        memory: the arguments themselves.
    """

    pointers: ctypes.Array[ctypes.c_void_p]
    memory: Any

    @property
    def address(self) -> int:
        """The address of the array of pointers."""
        return ctypes.addressof(self.pointers)


def resolve_arguments(
    arguments: Sequence[Argument], values: Values, encode: Encode
) -> list[int | float | bytes]:
    """The arguments with their symbols replaced by values.

    Raises:
        RunnerError: if a tensor map cannot be encoded.
    """
    resolved: list[int | float | bytes] = []
    for argument in arguments:
        value = argument.value
        if isinstance(value, TensorMap):
            resolved.append(encode(value, values))
        else:
            resolved.append(values[value] if isinstance(value, str) else value)
    return resolved


def pack_arguments(
    types: Sequence[ArgumentType], values: Sequence[int | float | bytes]
) -> PackedArguments:
    """Values of these types, packed. Tensor maps come first, at multiples of 64 bytes."""
    packed, offsets = _layout(tuple(types))
    memory = ctypes.create_string_buffer(packed.size + ALIGNMENT)
    address = ctypes.addressof(memory)
    first = -address % ALIGNMENT
    packed.pack_into(memory, first, *values)
    base = address + first
    return PackedArguments(
        (ctypes.c_void_p * len(offsets))(*[base + offset for offset in offsets]), memory
    )


@lru_cache(maxsize=256)
def _layout(types: tuple[ArgumentType, ...]) -> tuple[struct.Struct, tuple[int, ...]]:
    """The C struct of these types, and the offset of each member."""
    formats = [FORMATS[type] for type in types]
    ends = (struct.calcsize("@" + "".join(formats[: n + 1])) for n in range(len(formats)))
    sizes = (struct.calcsize(format) for format in formats)
    offsets = tuple(end - size for end, size in zip(ends, sizes, strict=True))
    return struct.Struct("@" + "".join(formats)), offsets
