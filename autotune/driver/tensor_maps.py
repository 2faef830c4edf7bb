"""Encodes tensor maps for the addresses of a launch.

The driver encodes them. `cuda.bindings` offers its function, but aligns a CUtensorMap to 16 bytes
where the driver needs 64 (NVIDIA/cuda-python pull request 1692). So the function is called through
`ctypes`, on memory that is aligned here.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.driver.entry_points import entry_point
from autotune.errors import RunnerError
from autotune.families.plan import VECTOR_BYTES, TensorMap
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
        return f"address {tensor.address:#x} is no multiple of {VECTOR_BYTES}"
    for name, step in zip(("pitch", "stride"), tensor.strides, strict=True):
        if step % VECTOR_BYTES or not 0 < step < STRIDE_LIMIT:
            return f"a {name} of {step} bytes is no multiple of {VECTOR_BYTES} below 2^40"
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
