"""Tensor maps as the GPU takes them: encoded by the driver, at a launch, for the addresses there.

`cuda.bindings` has the driver's function, but its CUtensorMap lies at multiples of 16 where the
driver asks for 64 (NVIDIA/cuda-python pull request 1692); so the function is called with memory of
our own.
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
"""Size of an encoded tensor map, and what its address has to be a multiple of."""

LARGEST_BOX = 256
STRIDE_LIMIT = 2**40
LARGEST_EXTENT = 2**32

# Names and values of cuda.h.
SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}
NO_INTERLEAVE, L2_PROMOTION_256B, ZEROS_OUTSIDE = 0, 3, 0

# Drivers until 595 set a bit of the encoding by mistake where a tensor is smaller than this, and
# Blackwell may then read outside of it (release notes of 595.71.05, known issues: clear bit 85).
# Hopper does not look at the bit.
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
class Tensor:
    """What a tensor map describes once it is known where it lies.

    Attributes:
        address: of its first element.
        extents: columns, rows and matrices.
        strides: bytes from row to row and from matrix to matrix.
    """

    address: int
    extents: tuple[int, int, int]
    strides: tuple[int, int]

    @classmethod
    def of(cls, one: TensorMap, values: Mapping[str, float]) -> Tensor:
        """The tensor at a launch; `values` has what the symbols of the tensor map stand for."""

        def steps(value: str | int) -> int:
            return one.element_bytes * int(values[value] if isinstance(value, str) else value)

        pitch, stride = steps(one.pitch), steps(one.stride)
        address = int(values[one.base]) + one.offset
        if stride == 0 or one.batch == 1:
            # No copy goes from the one matrix to another, but the stride has to be a legal one.
            return cls(address, (one.columns, one.rows, 1), (pitch, pitch * one.rows))
        return cls(address, (one.columns, one.rows, one.batch), (pitch, stride))

    def span(self, element_bytes: int) -> int:
        """Bytes from its first element to the end of its last."""
        columns, rows, batch = self.extents
        pitch, stride = self.strides
        return columns * element_bytes + (rows - 1) * pitch + (batch - 1) * stride


class Encoder:
    """The driver's encoder of tensor maps.

    Args:
        cuda: `cuda.bindings.driver` or a stand-in.

    Raises:
        RunnerError: if the driver has none.
    """

    def __init__(self, cuda: Any) -> None:
        self._encode = _ENCODE(entry_point(cuda, _NAME, _SINCE))

    def __call__(self, one: TensorMap, values: Mapping[str, float]) -> bytes:
        """The 128 bytes that a kernel takes for a tensor map at a launch.

        Args:
            one: the tensor map.
            values: what its symbols stand for: addresses, leading dimensions, strides.

        Raises:
            RunnerError: if there is no such tensor map; with what is wrong.
        """
        tensor = Tensor.of(one, values)
        if (wrong := fault(one, tensor)) is not None:
            raise RunnerError(f"tensor map of {one.base}: {wrong}")
        memory = ctypes.create_string_buffer(BYTES + ALIGNMENT)
        start = -ctypes.addressof(memory) % ALIGNMENT
        status = self._encode(
            ctypes.addressof(memory) + start,
            *(TENSOR_MAP_TYPES[one.type].number, len(tensor.extents), tensor.address),
            (ctypes.c_uint64 * 3)(*tensor.extents),
            (ctypes.c_uint64 * 2)(*tensor.strides),
            (ctypes.c_uint32 * 3)(*one.box, 1),
            (ctypes.c_uint32 * 3)(1, 1, 1),
            *(NO_INTERLEAVE, SWIZZLES[one.swizzle], L2_PROMOTION_256B, ZEROS_OUTSIDE),
        )
        if status:
            raise RunnerError(f"{_NAME} gave {status} for {one} at {tensor}")
        if tensor.span(one.element_bytes) < _SMALL:
            word = ctypes.c_uint64.from_buffer(memory, start + 8 * _MISTAKEN_WORD)
            word.value &= ~(1 << _MISTAKEN_BIT)
        return memory.raw[start : start + BYTES]


def fault(one: TensorMap, tensor: Tensor) -> str | None:
    """What is wrong with a tensor map by the rules of `cuTensorMapEncodeTiled`, if anything."""
    if tensor.address % VECTOR_BYTES:
        return f"address {tensor.address:#x} is no multiple of {VECTOR_BYTES}"
    for name, step in zip(("pitch", "stride"), tensor.strides, strict=True):
        if step % VECTOR_BYTES or not 0 < step < STRIDE_LIMIT:
            return f"a {name} of {step} bytes is no multiple of {VECTOR_BYTES} below 2^40"
    if not all(0 < extent <= LARGEST_EXTENT for extent in tensor.extents):
        return f"extents {tensor.extents} are not all in 1..2^32"
    if not all(0 < side <= LARGEST_BOX for side in one.box):
        return f"a box of {one.box} elements has a side outside of 1..{LARGEST_BOX}"
    row = one.box[0] * one.element_bytes
    if row % VECTOR_BYTES:
        return f"a box with rows of {row} bytes, no multiple of {VECTOR_BYTES}"
    if one.swizzle not in SWIZZLES:
        return f"a swizzle of {one.swizzle} bytes; there are {', '.join(map(str, SWIZZLES))}"
    if 0 < one.swizzle < row:
        return f"a box with rows of {row} bytes is wider than its swizzle of {one.swizzle}"
    return None
