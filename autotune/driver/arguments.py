"""The arguments of a launch in memory, as the driver takes them: an array of pointers."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune.driver.tensor_maps import ALIGNMENT, BYTES
from autotune.families.plan import Argument, ArgumentType, TensorMap

Values = Mapping[str, float]
"""What the words among a plan's arguments stand for: `a`, `lda`, `alpha` and so on."""
Encode = Callable[[TensorMap, Values], bytes]

# Arguments lie as in a struct; tensor maps in front come at multiples of 64.
FORMATS: Mapping[ArgumentType, str] = {
    "tensor_map": f"{BYTES}s",
    **{"pointer": "P", "f32": "f", "f64": "d"},
    **{"i8": "b", "i16": "h", "i32": "i", "i64": "q"},
    **{"u8": "B", "u16": "H", "u32": "I", "u64": "Q"},
}


@dataclass(frozen=True)
class Packed:
    """Arguments at places of their own, for as long as this lives.

    Attributes:
        pointers: to each argument, in order.
        memory: where they are.
    """

    pointers: ctypes.Array[ctypes.c_void_p]
    memory: Any

    @property
    def address(self) -> int:
        """Of the first pointer."""
        return ctypes.addressof(self.pointers)


def resolved(
    arguments: Sequence[Argument], values: Values, encode: Encode
) -> list[int | float | bytes]:
    """The values of arguments, with `values` for their words.

    Raises:
        RunnerError: if a tensor map cannot be encoded.
    """
    found: list[int | float | bytes] = []
    for argument in arguments:
        value = argument.value
        if isinstance(value, TensorMap):
            found.append(encode(value, values))
        else:
            found.append(values[value] if isinstance(value, str) else value)
    return found


def packed(types: Sequence[ArgumentType], values: Sequence[int | float | bytes]) -> Packed:
    """Values of these types in memory, tensor maps, which come first, at multiples of 64."""
    formats = [FORMATS[one] for one in types]
    layout = "@" + "".join(formats)
    memory = ctypes.create_string_buffer(struct.calcsize(layout) + ALIGNMENT)
    first = -ctypes.addressof(memory) % ALIGNMENT
    struct.pack_into(layout, memory, first, *values)
    ends = (struct.calcsize("@" + "".join(formats[: n + 1])) for n in range(len(formats)))
    base = ctypes.addressof(memory) + first
    starts = (base + end - struct.calcsize(one) for end, one in zip(ends, formats, strict=True))
    return Packed((ctypes.c_void_p * len(formats))(*starts), memory)
