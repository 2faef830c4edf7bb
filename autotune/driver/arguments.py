"""Packs the arguments of a launch into memory, with the array of pointers the driver takes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from autotune.driver.tensor_maps import ALIGNMENT, BYTES
from autotune.families.plan import Argument, ArgumentType, ParameterType, TensorMap

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


class Resolver:
    """Finds the values of a launch's arguments, with one for each member of a struct.

    Every new binding resolves them, so what depends on the arguments alone is computed once.
    """

    def __init__(self, arguments: Sequence[Argument]) -> None:
        cells = [cell.value for argument in arguments for cell in argument.cells]
        self._maps = [
            (place, value) for place, value in enumerate(cells) if isinstance(value, TensorMap)
        ]
        self._numbers: dict[Any, Any] = {
            place: value for place, value in enumerate(cells) if not isinstance(value, str)
        }
        keys = [value if isinstance(value, str) else place for place, value in enumerate(cells)]
        # With a single key, `itemgetter` gives no tuple.
        self._get = (
            itemgetter(*keys) if len(keys) > 1 else lambda values: tuple(map(values.get, keys))
        )

    def __call__(self, values: Values, encode: Encode) -> tuple[int | float | bytes, ...]:
        """The arguments with their symbols replaced by values.

        Raises:
            RunnerError: if a tensor map cannot be encoded.
        """
        complete = {**values, **self._numbers}
        for place, tensor_map in self._maps:
            complete[place] = encode(tensor_map, values)
        resolved: tuple[int | float | bytes, ...] = self._get(complete)
        return resolved


def resolve_arguments(
    arguments: Sequence[Argument], values: Values, encode: Encode
) -> tuple[int | float | bytes, ...]:
    """The arguments with their symbols replaced by values (see `Resolver`)."""
    return Resolver(arguments)(values, encode)


def pack_arguments(
    types: Sequence[ParameterType], values: Sequence[int | float | bytes]
) -> PackedArguments:
    """Values for parameters of these types, packed: a value for each member of a struct. Tensor
    maps come first, at multiples of 64 bytes."""
    packed = layout(tuple(types))
    memory = ctypes.create_string_buffer(packed.size + ALIGNMENT)
    address = ctypes.addressof(memory)
    first = -address % ALIGNMENT
    packed.members.pack_into(memory, first, *values)
    base = address + first
    pointers = [base + offset for offset in packed.parameters]
    return PackedArguments((ctypes.c_void_p * len(pointers))(*pointers), memory)


class Layout(NamedTuple):
    """Parameters in memory.

    Attributes:
        members: the parameters as one C struct, with a value for each cell.
        parameters: the offset of each parameter in bytes.
        cells: the offset of each parameter that is no struct and of each member of the structs.
        size: bytes of all.
    """

    members: struct.Struct
    parameters: tuple[int, ...]
    cells: tuple[int, ...]
    size: int


@lru_cache(maxsize=256)
def layout(types: tuple[ParameterType, ...]) -> Layout:
    """Parameters of these types in memory, each aligned as in C."""
    cells: list[int] = []
    parameters, format = [], "@"
    for type in types:
        parameters.append(len(cells))
        format = _extended(format, type, cells)
    members = struct.Struct(format)
    return Layout(members, tuple(cells[place] for place in parameters), tuple(cells), members.size)


def _extended(format: str, type: ParameterType, cells: list[int]) -> str:
    """A format of `struct` with a parameter at its end, whose offsets are added to `cells`. A
    struct starts and ends where its widest member may."""
    aligned = format + _aligned(type)
    if isinstance(type, str):
        cells.append(struct.calcsize(aligned))
        return format + FORMATS[type]
    for member in type:
        aligned = _extended(aligned, member, cells)
    return aligned + _aligned(type)


def _aligned(type: ParameterType) -> str:
    """A format of `struct` without bytes that aligns what follows as the type is aligned."""
    if isinstance(type, str):
        return f"0{FORMATS[type][-1]}"
    return max(map(_aligned, type), key=lambda code: struct.calcsize(f"@b{code}"))
