"""Encoding of tensor maps, and refusal of illegal ones."""

from __future__ import annotations

import struct
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from support.fake_encoder import WORD_1, Encoded, FakeEncoder

from autotune.cuda import launches
from autotune.cuda.launches import TensorMapEncoder
from autotune.errors import RunnerError
from autotune.families.plan import Argument, TensorMap
from autotune.problem import TENSOR_MAP_TYPES

A = TensorMap(
    base="a",
    offset=32,
    type="bf16",
    columns=4096,
    rows=512,
    batch=3,
    pitch="lda",
    stride="stride_a",
    box=(64, 128),
    swizzle=128,
)
VALUES: dict[str, float] = {"a": 4096, "lda": 4104, "stride_a": 4104 * 513, "alpha": 0.5}


@pytest.fixture
def fake() -> FakeEncoder:
    return FakeEncoder()


def test_tensor_map_is_encoded_for_its_address_in_bytes(fake: FakeEncoder) -> None:
    TensorMapEncoder(fake)(A, VALUES)
    assert fake.calls == [
        Encoded(
            type=9,
            rank=3,
            address=4096 + 32,
            extents=(4096, 512, 3),
            strides=(2 * 4104, 2 * 4104 * 513),
            box=(64, 128, 1),
            steps=(1, 1, 1),
            interleave=0,
            swizzle=3,
            promotion=3,
            fill=0,
        )
    ]


def test_encoding_is_what_the_driver_wrote(fake: FakeEncoder) -> None:
    encoded = TensorMapEncoder(fake)(A, VALUES)
    assert encoded == struct.pack("<QQ", 0, WORD_1).ljust(128, b"\x5a")


@pytest.mark.parametrize(("stride", "batch"), [(0, 3), (0, 1), (4104 * 513, 1)])
def test_single_matrix_has_a_third_extent_of_1(fake: FakeEncoder, stride: int, batch: int) -> None:
    TensorMapEncoder(fake)(replace(A, batch=batch), VALUES | {"stride_a": stride})
    assert fake.calls[0].extents == (4096, 512, 1)
    assert fake.calls[0].strides == (2 * 4104, 2 * 4104 * 512)


def test_packed_copy_has_its_own_strides(fake: FakeEncoder) -> None:
    copied = replace(A, base="workspace", type="f32", pitch=64, stride=64 * 512, box=(32, 8))
    TensorMapEncoder(fake)(replace(copied, columns=61), {"workspace": 256})
    assert fake.calls[0].strides == (4 * 64, 4 * 64 * 512)
    assert fake.calls[0].extents == (61, 512, 3)


@pytest.mark.parametrize(("columns", "cleared"), [(63, True), (64, False)])
def test_erroneous_bit_is_cleared_below_128_kib(
    fake: FakeEncoder, columns: int, cleared: bool
) -> None:
    # 1023 rows of 128 bytes and a last row of `columns` elements.
    encoded = TensorMapEncoder(fake)(
        replace(A, columns=columns, rows=1024, batch=1), VALUES | {"lda": 64}
    )
    (word,) = struct.unpack_from("<Q", encoded, 8)
    assert word == (WORD_1 & ~(1 << 21) if cleared else WORD_1)


def test_enumerations_have_the_values_of_the_driver() -> None:
    cuda = pytest.importorskip("cuda.bindings.driver")
    types, swizzles = cuda.CUtensorMapDataType, cuda.CUtensorMapSwizzle
    words = {"f": "FLOAT", "bf": "BFLOAT", "tf": "TFLOAT", "u": "UINT", "i": "INT"}
    for name, row in TENSOR_MAP_TYPES.items():
        word, bits = words[name.rstrip("0123456789")], name.lstrip("bftui")
        assert row.number == int(getattr(types, f"CU_TENSOR_MAP_DATA_TYPE_{word}{bits}"))
    assert {
        width: int(getattr(swizzles, f"CU_TENSOR_MAP_SWIZZLE_{name}"))
        for width, name in ((0, "NONE"), (32, "32B"), (64, "64B"), (128, "128B"))
    } == launches.SWIZZLES
    promotion = cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B
    assert int(promotion) == launches.L2_PROMOTION_256B


@pytest.mark.parametrize(
    ("changed", "values", "reason"),
    [
        ({"offset": 40}, {}, "address 0x1028 is not a multiple of 16"),
        ({}, {"a": 4098}, "address 0x1022 is not a multiple of 16"),
        ({}, {"lda": 4100}, "a pitch of 8200 bytes is not a multiple of 16"),
        ({}, {"lda": 0}, "a pitch of 0 bytes"),
        ({}, {"stride_a": 4}, "a stride of 8 bytes is not a multiple of 16"),
        ({}, {"stride_a": 2**39}, "a stride of 1099511627776 bytes"),
        ({"rows": 0}, {}, "extents"),
        ({"rows": 2**32 + 1}, {}, "extents"),
        ({"box": (64, 257)}, {}, "a side outside of 1..256"),
        ({"box": (64, 0)}, {}, "a side outside of 1..256"),
        ({"box": (4, 8)}, {}, "rows of 8 bytes, no multiple of 16"),
        ({"swizzle": 48}, {}, "a swizzle of 48 bytes"),
        ({"swizzle": 64}, {}, "rows of 128 bytes is wider than its swizzle of 64"),
    ],
)
def test_illegal_tensor_maps_are_refused_with_the_reason(
    fake: FakeEncoder, changed: dict[str, Any], values: dict[str, float], reason: str
) -> None:
    with pytest.raises(RunnerError, match=f"tensor map of a: .*{reason}"):
        TensorMapEncoder(fake)(replace(A, **changed), VALUES | values)
    assert fake.calls == []


@pytest.mark.parametrize("changed", [{"box": (256, 256), "swizzle": 0}, {"rows": 2**32}])
def test_limits_themselves_are_allowed(fake: FakeEncoder, changed: dict[str, Any]) -> None:
    TensorMapEncoder(fake)(replace(A, batch=1, **changed), VALUES | {"lda": 8})
    assert len(fake.calls) == 1


def test_driver_refusal_names_the_status(fake: FakeEncoder) -> None:
    fake.status = 1
    with pytest.raises(RunnerError, match="cuTensorMapEncodeTiled gave 1 for TensorMap"):
        TensorMapEncoder(fake)(A, VALUES)


@pytest.mark.parametrize("answer", [(0, 0, 1), (0, None, 1), (500, None, None)])
def test_driver_without_tensor_maps_is_refused(answer: tuple[Any, ...]) -> None:
    with pytest.raises(RunnerError, match="has no cuTensorMapEncodeTiled; update it"):
        TensorMapEncoder(SimpleNamespace(cuGetProcAddress=lambda *_: answer))


def test_tensor_maps_are_passed_by_value(fake: FakeEncoder) -> None:
    from autotune.cuda import launches

    parameters = (
        Argument("tensor_map", A),
        Argument("pointer", "a"),
        Argument("i32", 7),
        Argument("f32", "alpha"),
    )
    encoded, *scalars = launches.Resolver(parameters)(VALUES, TensorMapEncoder(fake))
    assert isinstance(encoded, bytes)
    assert scalars == [4096, 7, 0.5]
    members = launches.layout(tuple(argument.parameter for argument in parameters)).members
    packed = members.pack(encoded, *scalars)
    assert packed[:128] == encoded
    assert len(packed) == 128 + 16
