"""Launch arguments for the driver: packed parameters, tensor maps and launch dependence.

The driver encodes tensor maps. `cuda.bindings` offers its function, but aligns a CUtensorMap to 16
bytes where the driver needs 64 (NVIDIA/cuda-python pull request 1692). So the function is called
through `ctypes`, on memory that is aligned here.

By programmatic dependent launch a kernel starts before its predecessor has ended;
`cuda_src/include/common/dependent_launch.cuh` says why that is safe.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

from autotune.cuda.bindings import entry_point
from autotune.device import Device
from autotune.errors import RunnerError, UsageError
from autotune.families.plan import (
    VECTOR_BYTES,
    Argument,
    ArgumentType,
    LaunchPlan,
    ParameterType,
    TensorMap,
)
from autotune.problem import TENSOR_MAP_TYPES

BYTES, ALIGNMENT = 128, 64
"""Size and alignment of an encoded tensor map, in bytes."""

LARGEST_BOX = 256
STRIDE_LIMIT = 2**40
LARGEST_EXTENT = 2**32

# Values of the enumerations in cuda.h.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NO_INTERLEAVE, L2_PROMOTION_256B, ZEROS_OUTSIDE = 0, 3, 0

# Drivers before 595 set a bit of the encoding by mistake if a tensor is smaller than this many
# bytes, and Blackwell may then read beyond the tensor (release notes of 595.71.05, known issues:
# clear bit 85). Hopper ignores the bit.
_SMALL = 128 * 1024
_MISTAKEN_WORD, _MISTAKEN_BIT = 1, 21

_NAME, _SINCE = "cuTensorMapEncodeTiled", 12000
_ENCODE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    *(ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p),
    *(ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64)),
    *(ctypes.POINTER(ctypes.c_uint32), ctypes.POINTER(ctypes.c_uint32)),
    *(ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int),
)


@dataclass(frozen=True)
class PlacedTensor:
    """The tensor that a tensor map describes at a launch.

    Attributes:
        address: address of the first element.
        extents: number of columns, rows and matrices.
        strides: bytes from row to row and from matrix to matrix.
    """

    address: int
    extents: tuple[int, int, int]
    strides: tuple[int, int]

    @classmethod
    def of(cls, tensor_map: TensorMap, values: Mapping[str, float]) -> PlacedTensor:
        """The tensor at a launch, where `values` has the values of the map's symbols."""

        def in_bytes(step: str | int) -> int:
            elements = int(values[step] if isinstance(step, str) else step)
            return tensor_map.element_bytes * elements

        pitch, stride = in_bytes(tensor_map.pitch), in_bytes(tensor_map.stride)
        address = int(values[tensor_map.base]) + tensor_map.offset
        columns, rows, batch = tensor_map.columns, tensor_map.rows, tensor_map.batch
        if stride == 0 or batch == 1:
            # The stride of a single matrix is never used, but the driver checks it.
            return cls(address, (columns, rows, 1), (pitch, pitch * rows))
        return cls(address, (columns, rows, batch), (pitch, stride))

    def span(self, element_bytes: int) -> int:
        """Bytes from the start of the first element to the end of the last."""
        columns, rows, batch = self.extents
        pitch, stride = self.strides
        return columns * element_bytes + (rows - 1) * pitch + (batch - 1) * stride


class TensorMapEncoder:
    """The driver's encoder of tensor maps.

    Args:
        cuda: `cuda.bindings.driver` or a stand-in.

    Raises:
        RunnerError: if the driver does not have it.
    """

    def __init__(self, cuda: Any) -> None:
        self._encode = _ENCODE(entry_point(cuda, _NAME, _SINCE))

    def __call__(self, tensor_map: TensorMap, values: Mapping[str, float]) -> bytes:
        """The 128 bytes that a kernel takes for a tensor map at a launch.

        Args:
            tensor_map: the tensor map.
            values: the values of its symbols: addresses, leading dimensions, strides.

        Raises:
            RunnerError: if no tensor map can describe the tensor; with the rule that it breaks.
        """
        tensor = PlacedTensor.of(tensor_map, values)
        if (wrong := fault(tensor_map, tensor)) is not None:
            raise RunnerError(f"tensor map of {tensor_map.base}: {wrong}")
        memory = ctypes.create_string_buffer(BYTES + ALIGNMENT)
        start = -ctypes.addressof(memory) % ALIGNMENT
        status = self._encode(
            ctypes.addressof(memory) + start,
            *(TENSOR_MAP_TYPES[tensor_map.type].number, len(tensor.extents), tensor.address),
            (ctypes.c_uint64 * 3)(*tensor.extents),
            (ctypes.c_uint64 * 2)(*tensor.strides),
            (ctypes.c_uint32 * 3)(*tensor_map.box, 1),
            (ctypes.c_uint32 * 3)(1, 1, 1),
            *(NO_INTERLEAVE, SWIZZLES[tensor_map.swizzle], L2_PROMOTION_256B, ZEROS_OUTSIDE),
        )
        if status:
            raise RunnerError(f"{_NAME} gave {status} for {tensor_map} at {tensor}")
        if tensor.span(tensor_map.element_bytes) < _SMALL:
            word = ctypes.c_uint64.from_buffer(memory, start + 8 * _MISTAKEN_WORD)
            word.value &= ~(1 << _MISTAKEN_BIT)
        return memory.raw[start : start + BYTES]


def fault(tensor_map: TensorMap, tensor: PlacedTensor) -> str | None:
    """The rule of `cuTensorMapEncodeTiled` that a tensor map breaks; None if it keeps all."""
    if tensor.address % VECTOR_BYTES:
        return f"address {tensor.address:#x} is not a multiple of {VECTOR_BYTES}"
    for name, step in zip(("pitch", "stride"), tensor.strides, strict=True):
        if step % VECTOR_BYTES or not 0 < step < STRIDE_LIMIT:
            return f"a {name} of {step} bytes is not a multiple of {VECTOR_BYTES} below 2^40"
    if not all(0 < extent <= LARGEST_EXTENT for extent in tensor.extents):
        return f"extents {tensor.extents} are not all in 1..2^32"
    if not all(0 < side <= LARGEST_BOX for side in tensor_map.box):
        return f"a box of {tensor_map.box} elements has a side outside of 1..{LARGEST_BOX}"
    row = tensor_map.box[0] * tensor_map.element_bytes
    if row % VECTOR_BYTES:
        return f"a box with rows of {row} bytes, no multiple of {VECTOR_BYTES}"
    if tensor_map.swizzle not in SWIZZLES:
        return f"a swizzle of {tensor_map.swizzle} bytes; there are {', '.join(map(str, SWIZZLES))}"
    if 0 < tensor_map.swizzle < row:
        return f"a box with rows of {row} bytes is wider than its swizzle of {tensor_map.swizzle}"
    return None


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
        cells: the offset of each parameter that is not a struct and of each member of the structs.
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
    if not isinstance(type, tuple):
        cells.append(struct.calcsize(aligned))
        return format + _format(type)
    for member in type:
        aligned = _extended(aligned, member, cells)
    return aligned + _aligned(type)


def _aligned(type: ParameterType) -> str:
    """A format of `struct` without bytes that aligns what follows as the type is aligned."""
    if not isinstance(type, tuple):
        return f"0{_format(type)[-1]}"
    return max(map(_aligned, type), key=lambda code: struct.calcsize(f"@b{code}"))


def _format(type: ArgumentType | int) -> str:
    return f"{type}s" if isinstance(type, int) else FORMATS[type]


class Dependence(IntEnum):
    """The part of a product that waits for the kernel before it on the stream."""

    NONE = 0
    """The product starts after that kernel."""
    ALL = 1
    """A dependent launch: starts early and waits before it reads."""
    OF_A = 2
    """A dependent launch whose B was ready before: starts early and waits before it reads A."""


CAPABILITY = 9, 0
"""The first compute capability with programmatic dependent launch."""


def has_dependent_launch(device: Device) -> bool:
    """Whether the device has programmatic dependent launch."""
    return device.compute_capability >= CAPABILITY


def dependent_launches(plan: LaunchPlan, device: Device, first: bool = False) -> tuple[bool, ...]:
    """The dependence of each launch of a plan: whether it is a dependent launch.

    Where the device and the plan have them, the second and later launches always are, as they
    follow a kernel of the same plan. The first is one if the caller asks for it.

    Raises:
        UsageError: for `first` on a device without them.
    """
    available = has_dependent_launch(device)
    if first and not available:
        major, minor = device.compute_capability
        raise UsageError(
            f"programmatic dependent launch needs compute capability 9.0; {device.name} has "
            f"{major}.{minor}: call without `dependent`"
        )
    return first, *[available and plan.dependent] * (len(plan.launches) - 1)
