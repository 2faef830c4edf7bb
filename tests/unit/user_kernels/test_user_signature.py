"""Arguments checked against the signature that the compiler reports."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.sample_user_kernels import arguments, kernel

from autotune.errors import UsageError
from autotune.user_kernels import check_signature, source_folder

MANY = """
namespace my {
struct Pair { float first; int second; };
template <typename T, int N>
__global__ void many(T* __restrict__ out, const unsigned char* bytes, const void* any, Pair* pairs,
                     float4* vectors, const T scale, bool flag, unsigned long long size, Pair pair,
                     float2* complex) {
    out[0] = scale;
}
}
"""
TAKEN: list[Any] = [
    *(np.zeros(4, np.float32), np.zeros(4, np.float64), np.zeros(4, np.int16)),
    *(np.zeros(4, np.float32), np.zeros(8, np.float32), np.float32(1), np.bool_(True)),
    *(np.uint64(1), np.int64(0), np.zeros(2, np.complex64)),
]


def check(values: list[Any], **changes: Any) -> None:
    definition = kernel(**changes)
    config = next(definition.combinations())
    with source_folder(definition) as places:
        check_signature(definition, config, values, "sm_90", places)


def check_many(values: list[Any], name: str = "my::many<float, N>") -> None:
    check(values, source=MANY, name=name, parameters={"N": (1,)})


def test_matching_arguments_are_accepted() -> None:
    check(arguments())


def test_pointers_to_structures_accept_any_array() -> None:
    check_many(TAKEN)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (0, np.zeros(4), r"argument 0 is an array of float64 \(8 bytes\); my::many takes a pointer "
         "to a floating-point number of 4 bytes there; give the NumPy type of that"),
        (0, np.zeros(4, np.int32), "argument 0 is an array of int32"),
        (0, np.zeros(4, np.float16), "argument 0 is an array of float16"),
        (0, np.int64(0), r"argument 0 is int64 \(8 bytes\); my::many takes a pointer"),
        (5, np.float64(1), "argument 5 is float64 .8 bytes.; my::many takes a floating-point "
         "number of 4 bytes"),
        (5, np.int32(1), "argument 5 is int32 .4 bytes.; my::many takes a floating-point number"),
        (5, np.zeros(1, np.float32), "argument 5 is an array of float32"),
        (6, np.int32(1), "takes a whole number of 1 bytes there"),
        (8, np.int32(1), "argument 8 is int32 .4 bytes.; my::many takes a value of 8 bytes"),
    ],
)  # fmt: skip
def test_wrong_type_is_refused_naming_both_types(place: int, value: Any, message: str) -> None:
    wrong = [*TAKEN]
    wrong[place] = value
    with pytest.raises(UsageError, match=message):
        check_many(wrong)


@pytest.mark.parametrize("count", [9, 11])
def test_wrong_number_of_arguments_is_refused(count: int) -> None:
    message = rf"my::many takes 10 arguments \(a pointer to a floating.*\), {count} are given"
    with pytest.raises(UsageError, match=message):
        check_many([*TAKEN, np.int32(1)][:count])


def test_types_are_those_of_the_instance() -> None:
    with pytest.raises(UsageError, match="takes a pointer to a floating-point number of 8 bytes"):
        check_many(TAKEN, name="my::many<double, N>")


def test_kernel_without_arguments_takes_none() -> None:
    nothing = "__global__ void nothing() {}"
    check([], source=nothing, name="nothing<>", parameters={})
    with pytest.raises(UsageError, match=r"takes 0 arguments \(\), 1 are given"):
        check([np.int32(1)], source=nothing, name="nothing<>", parameters={})


def test_kernel_that_does_not_compile_is_not_checked() -> None:
    check([np.int32(1)], source="this is no C++")
