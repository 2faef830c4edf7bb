"""Textures: what CUDA has, their memory and their descriptors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as cuda

from autotune.cuda.textures import Texture
from autotune.errors import UsageError

F4 = np.float32
FLOAT4 = np.dtype([(axis, F4) for axis in "xyzw"])
IMAGE, VECTOR = np.arange(15, dtype=F4).reshape(3, 5), np.arange(5, dtype=F4)


@pytest.mark.parametrize(
    ("array", "words", "message"),
    [
        (IMAGE, {"address": "repeat"}, "address is 'repeat'; give one of clamp, border, wrap"),
        (IMAGE, {"filter": "cubic"}, "filter is 'cubic'; give one of point, linear"),
        (IMAGE, {"address": "wrap"}, "'wrap' takes normalized coordinates; give normalized=True"),
        (IMAGE, {"read": "normalized"}, "for integers of 8 and 16 bits, not float32"),
        (IMAGE.astype(np.int16), {"filter": "linear"}, "floats, not int16; give read='normalized'"),
        (VECTOR, {"filter": "linear"}, "a vector is read by index alone; give a matrix"),
        (VECTOR, {"normalized": True}, "a vector is read by index alone"),
        (IMAGE.T, {}, "not in C order; give numpy.ascontiguousarray"),
        (IMAGE.astype(">f4"), {}, "elements of >f4; CUDA has 1, 2 or 4 of uint8, "),
        (IMAGE.astype(np.float64), {}, "elements of float64; CUDA has 1, 2 or 4 of uint8, "),
        (np.zeros((2, 2), FLOAT4[["x", "y", "z"]]), {}, "CUDA has 1, 2 or 4 of"),
        (np.zeros((2, 2, 2), F4), {}, "give a NumPy array of one or two axes, not "),
        (np.zeros((65001, 1), np.uint8), {}, r"shape \(65001, 1\); CUDA reads 2\^27 elements, or "),
        ([1.0], {}, "give a NumPy array of one or two axes"),
    ],
)
def test_what_cuda_lacks_is_refused(array: Any, words: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"texture: .*{message}"):
        Texture(array, **words)


def test_rows_of_a_matrix_start_at_multiples_of_the_pitch() -> None:
    texture = Texture(IMAGE)
    rows = texture.content().reshape(3, 512)
    np.testing.assert_array_equal(rows[:, :20].copy().view(F4), IMAGE)
    assert not rows[:, 20:].any()
    np.testing.assert_array_equal(Texture(VECTOR).content().view(F4), VECTOR)


def test_matrix_is_described_as_pitched_memory() -> None:
    resource, texture = Texture(
        np.zeros((3, 5), FLOAT4), address="mirror", filter="linear", normalized=True
    ).descriptors(cuda, 4096)
    memory = resource.res.pitch2D
    assert resource.resType == cuda.CUresourcetype.CU_RESOURCE_TYPE_PITCH2D
    assert (int(memory.devPtr), memory.width, memory.height) == (4096, 5, 3)
    assert (memory.pitchInBytes, memory.numChannels) == (512, 4)
    assert memory.format == cuda.CUarray_format.CU_AD_FORMAT_FLOAT
    assert texture.addressMode[0] == cuda.CUaddress_mode.CU_TR_ADDRESS_MODE_MIRROR
    assert texture.filterMode == cuda.CUfilter_mode.CU_TR_FILTER_MODE_LINEAR
    assert texture.flags == cuda.CU_TRSF_NORMALIZED_COORDINATES


@pytest.mark.parametrize(
    ("dtype", "words", "format", "channels", "flags"),
    [
        ("uint8", {}, "UNSIGNED_INT8", 1, cuda.CU_TRSF_READ_AS_INTEGER),
        ("int32", {}, "SIGNED_INT32", 1, cuda.CU_TRSF_READ_AS_INTEGER),
        ("int16", {"read": "normalized"}, "SIGNED_INT16", 1, 0),
        ("float16", {}, "HALF", 1, 0),
        ("complex64", {}, "FLOAT", 2, 0),
    ],
)
def test_vector_is_described_as_linear_memory(
    dtype: str, words: dict[str, Any], format: str, channels: int, flags: int
) -> None:
    array = np.zeros(6, dtype)
    resource, texture = Texture(array, **words).descriptors(cuda, 4096)
    memory = resource.res.linear
    assert resource.resType == cuda.CUresourcetype.CU_RESOURCE_TYPE_LINEAR
    assert (int(memory.devPtr), memory.sizeInBytes) == (4096, array.nbytes)
    assert memory.format == getattr(cuda.CUarray_format, f"CU_AD_FORMAT_{format}")
    assert (memory.numChannels, texture.flags) == (channels, flags)


def test_text_states_how_it_is_read() -> None:
    image = IMAGE.astype(np.uint8)
    texture = Texture(image, "border", "linear", normalized=True, read="normalized")
    text = "texture(uint8[3,5],border,linear,normalized,read normalized)"
    assert str(texture) == text
