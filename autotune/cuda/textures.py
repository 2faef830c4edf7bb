"""Textures: arrays that a kernel reads through a texture object, in linear or pitched memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.problem.call import TEXTURE, ArrayText, dtype_text
from autotune.problem.integers import ceil_div

_WORDS = {
    "address": ("clamp", "border", "wrap", "mirror"),
    "filter": ("point", "linear"),
    "read": ("element", "normalized"),
}
_FORMATS = {
    **{"uint8": "UNSIGNED_INT8", "uint16": "UNSIGNED_INT16", "uint32": "UNSIGNED_INT32"},
    **{"int8": "SIGNED_INT8", "int16": "SIGNED_INT16", "int32": "SIGNED_INT32"},
    **{"float16": "HALF", "float32": "FLOAT"},
}
"""`CU_AD_FORMAT_...` of the driver by NumPy types."""

# CUDA programming guide, technical specifications: textures bound to linear memory.
_LONGEST, _WIDEST, _HIGHEST = 2**27, 131072, 65000
PITCH = 512
"""Bytes that the start of each row is a multiple of; the driver asks for 32."""

_AS_INTEGER, _NORMALIZED = 1, 2  # CU_TRSF_READ_AS_INTEGER, CU_TRSF_NORMALIZED_COORDINATES


@dataclass(frozen=True, eq=False)
class Texture:
    """An array that a kernel reads through a texture object, as an argument of `tune_kernel`.

        arguments=[out, autotune.Texture(image, filter="linear"), numpy.int32(width)]

    The kernel takes a `cudaTextureObject_t`. A vector is linear memory, read by `tex1Dfetch`; a
    matrix is pitched memory, read by `tex2D(texture, x, y)` with x along its rows. The reference
    gets the array.

    Attributes:
        array: a NumPy array in C order, a vector of at most 2^27 elements or a matrix of at most
            65000 rows of 131072. Elements are integers of 8 to 32 bits, float16, float32, or
            structures of 1, 2 or 4 of one of these, such as float4; complex64 is two floats.
        address: what is read outside of a matrix: `clamp`, the nearest element; `border`, zeros;
            `wrap` and `mirror`, the matrix repeated, with normalized coordinates only.
        filter: `point`, the element; `linear`, interpolated between four of a matrix.
        normalized: whether coordinates run from 0 to 1 rather than to the sizes.
        read: `element`, values as they are; `normalized`, integers of 8 and 16 bits as floats in
            0..1, signed ones in -1..1.

    Raises:
        UsageError: for an array or a combination that CUDA does not have.
    """

    array: NDArray[Any]
    address: str = "clamp"
    filter: str = "point"
    normalized: bool = False
    read: str = "element"

    def __post_init__(self) -> None:
        if fault := self._fault():
            raise UsageError(f"texture: {fault}")

    def _fault(self) -> str | None:
        """A message about what CUDA does not have; None if the texture can be made."""
        for name, words in _WORDS.items():
            if (value := getattr(self, name)) not in words:
                return f"{name} is {value!r}; give one of {', '.join(words)}"
        array = self.array
        if not isinstance(array, np.ndarray) or array.ndim not in (1, 2) or not array.size:
            return f"give a NumPy array of one or two axes, not {np.shape(array)}"
        if not array.flags.c_contiguous:
            return "the array is not in C order; give numpy.ascontiguousarray(array)"
        element, channels = self._texel
        if element.name not in _FORMATS or not element.isnative or channels not in (1, 2, 4):
            legal = f"1, 2 or 4 of {', '.join(_FORMATS)}"
            return f"elements of {array.dtype}; CUDA has {legal}"
        *rows, columns = array.shape
        if columns > (_WIDEST if rows else _LONGEST) or max(rows, default=1) > _HIGHEST:
            return f"shape {array.shape}; CUDA reads 2^27 elements, or 65000 rows of 131072"
        if array.ndim == 1 and (self.filter, self.normalized) != ("point", False):
            return "a vector is read by index alone; give a matrix, such as array.reshape(1, -1)"
        if self.address in ("wrap", "mirror") and not self.normalized:
            return f"address {self.address!r} takes normalized coordinates; give normalized=True"
        integers = element.kind in "iu"
        if self.read == "normalized" and not (integers and element.itemsize <= 2):
            return f"read 'normalized' is for integers of 8 and 16 bits, not {element}"
        if self.filter == "linear" and integers and self.read == "element":
            return f"filter 'linear' interpolates floats, not {element}; give read='normalized'"
        return None

    @property
    def _texel(self) -> tuple[np.dtype[Any], int]:
        """The type of a channel, and their number; 0 of a structure that is no vector."""
        dtype = self.array.dtype
        if dtype.name == "complex64":
            return np.dtype(np.float32), 2
        if dtype.names is None:
            return dtype, 1
        kinds = [dtype[name] for name in dtype.names]
        alike = len(set(kinds)) == 1 and kinds[0].itemsize * len(kinds) == dtype.itemsize
        return kinds[0], len(kinds) if alike else 0

    @property
    def pitch(self) -> int:
        """Bytes from a row of a matrix to the next on the device."""
        return ceil_div(self.array.nbytes // len(self.array), PITCH) * PITCH

    def __str__(self) -> str:
        """The texture in the text of a call, such as `texture(float32[480,640],clamp,linear)`."""
        array = ArrayText(dtype_text(self.array.dtype), self.array.shape)
        words = [str(array), self.address, self.filter]
        words += ["normalized"] * self.normalized + ["read normalized"] * (self.read != "element")
        return f"{TEXTURE}{','.join(words)})"

    def content(self) -> NDArray[np.uint8]:
        """The bytes of the array on the device, the rows of a matrix `pitch` apart."""
        array = self.array
        if array.ndim == 1:
            return array.view(np.uint8)
        rows = array.view(np.uint8).reshape(len(array), -1)
        return np.pad(rows, ((0, 0), (0, self.pitch - rows.shape[1]))).reshape(-1)

    def descriptors(self, cuda: Any, address: int) -> tuple[Any, Any]:
        """The arguments of `cuTexObjectCreate` for an array at an address.

        Args:
            cuda: `cuda.bindings.driver`.
            address: the address of its `content`.
        """
        element, channels = self._texel
        format = getattr(cuda.CUarray_format, f"CU_AD_FORMAT_{_FORMATS[element.name]}")
        resource, kinds = cuda.CUDA_RESOURCE_DESC(), cuda.CUresourcetype
        if self.array.ndim == 1:
            resource.resType, memory = kinds.CU_RESOURCE_TYPE_LINEAR, resource.res.linear
            memory.sizeInBytes = self.array.nbytes
        else:
            resource.resType, memory = kinds.CU_RESOURCE_TYPE_PITCH2D, resource.res.pitch2D
            memory.height, memory.width = self.array.shape
            memory.pitchInBytes = self.pitch
        memory.devPtr, memory.format, memory.numChannels = address, format, channels
        texture = cuda.CUDA_TEXTURE_DESC()
        mode = getattr(cuda.CUaddress_mode, f"CU_TR_ADDRESS_MODE_{self.address.upper()}")
        texture.addressMode = [mode] * 3
        texture.filterMode = getattr(cuda.CUfilter_mode, f"CU_TR_FILTER_MODE_{self.filter.upper()}")
        as_integer = element.kind in "iu" and self.read == "element"
        texture.flags = _AS_INTEGER * as_integer | _NORMALIZED * self.normalized
        return resource, texture
