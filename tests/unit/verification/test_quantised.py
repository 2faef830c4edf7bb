"""Tolerances of 8-bit products against sums that keep 14 bits, as tensor cores add them."""

import numpy as np
import pytest
from numpy.typing import NDArray
from support import numpy_types
from support.eight_bits import nearest
from support.tensor_core_sums import sums

from autotune.problem import Problem
from autotune.problem.problem import relative_bound
from autotune.verification import quantised
from autotune.verification.oracle import largest_error, tolerance

SUMS = 4000


@pytest.mark.parametrize("accumulate", ["exact", "fast"])
@pytest.mark.parametrize("k", [128, 1024])
def test_sums_of_14_bits_are_within_the_tolerance(k: int, accumulate: str) -> None:
    problem = Problem(1, SUMS, k, "f8", "nt", output="f32", accumulate=accumulate)
    random = np.random.default_rng(k)
    left, right = (
        nearest(random.standard_normal((k, SUMS), np.float32), "e4m3").astype(np.float64)
        for _ in range(2)
    )
    exact = (left * right).sum(0)
    errors = sums(left * right, 128 if accumulate == "exact" else k).sum(0) - exact
    allowed = tolerance(problem)
    assert allowed / 50 < np.abs(errors).max() < allowed / 2
    relative = np.sqrt((errors**2).sum() / (exact**2).sum())
    assert relative < relative_bound(problem, 0.0) < 3 * relative


def test_int32_sums_have_to_be_exact() -> None:
    assert tolerance(Problem(64, 64, 4096, "i8", "nt", output="i32")) == 0.0


@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
def test_scales_undo_the_factor_of_normal_numbers(scale: str) -> None:
    problem = Problem(64, 64, 256, "f8", "nt", scale=scale)
    factor = quantised.factor(problem, 0)
    assert factor * quantised.LARGEST_NORMAL == 448.0
    assert factor * quantised.scale_size(problem, 0) == pytest.approx(1.0)
    assert 1.25**2 < quantised.magnitude(problem) < 1.25**2 * 1.2


@pytest.mark.parametrize(("k", "factor"), [(64, 16.0), (4096, 8.0), (10**6, 2.0)])
def test_fp16_holds_integer_products_without_scales(k: int, factor: float) -> None:
    problem = Problem(64, 64, k, "i8", "nt", output="f16")
    assert quantised.factor(problem, 0) == factor
    assert quantised.factor(Problem(64, 64, k, "i8", "nt"), 0) == 32.0


def test_extreme_operands_leave_out_what_overflows() -> None:
    assert quantised.extremes(Problem(8, 8, 8, "bf16")) == ()
    assert len(quantised.extremes(Problem(8, 8, 8, "f8", scale="row", output="f16"))) == 2
    assert len(quantised.extremes(Problem(8, 8, 8, "f8", output="f16"))) == 1
    assert len(quantised.extremes(Problem(8, 8, 8, "i8"))) == 1


@pytest.mark.parametrize("compute", ["f16", "f8", "i8"])
@pytest.mark.parametrize("scale", ["none", "row"])
@pytest.mark.parametrize("k", [64, 16384])
def test_what_gates_make_stays_in_the_range_of_fp16(compute: str, scale: str, k: int) -> None:
    if compute == "f16" and scale == "row":
        return
    problem = Problem(64, 64, k, compute, "nt", epilogue="swiglu", output="f16", scale=scale)
    normal = np.random.default_rng(k).standard_normal(10_000, np.float32)
    variance = float(k)
    for side in (0, 1):
        size = quantised.UNEVEN * quantised.scale_size(problem, side) if scale == "row" else 1.0
        numbers = (normal * np.float32(quantised.factor(problem, side))).astype(np.float32)
        if compute != "f16":
            numbers = nearest(numbers, problem.operand_types[side])
        variance *= float(np.mean((size * numbers.astype(np.float64)) ** 2))
    # The product of two normal numbers exceeds t once in exp(t) times.
    assert variance * 32 < quantised.LARGEST_F16
    assert quantised.factor(Problem(64, 64, k, "f8", "nt", epilogue="swiglu"), 0) == 1.0


LONG = 9_000_000


@pytest.mark.parametrize("compute", ["f8", "i8"])
def test_fp16_holds_scaled_maximal_operands_at_any_k(compute: str) -> None:
    problem = Problem(1, 1, LONG, compute, "nt", output="f16", scale="row")
    assert len(quantised.extremes(problem)) >= 1
    size = 1.0
    for side, element in enumerate(problem.operand_elements):
        size *= element.largest * quantised.UNEVEN * quantised.scale_size(problem, side)
    # A sum of K numbers of one size and random signs exceeds 8 sqrt(K) of it once in 1e14 times.
    assert size * 8 * LONG**0.5 < quantised.LARGEST_F16


@pytest.mark.parametrize("k", [LONG, 10**8, 2**31 - 1])
@pytest.mark.parametrize("compute", ["f16", "f8", "i8"])
def test_fp16_holds_normal_operands_at_any_k(compute: str, k: int) -> None:
    problem = Problem(1, 1, k, compute, "nt", output="same" if compute == "f16" else "f16")
    factors = quantised.factor(problem, 0) * quantised.factor(problem, 1)
    rounding = 1 / 12 if compute == "i8" else 0.0
    assert (factors + rounding) * 7 * k**0.5 < quantised.LARGEST_F16


def test_maximal_int8_operands_stay_within_int32() -> None:
    assert len(quantised.extremes(Problem(1, 1, LONG, "i8", output="i32"))) == 1
    assert quantised.extremes(Problem(1, 1, 2**31 - 1, "i8", output="i32")) == ()


def row_of_maximal(random: np.random.Generator) -> NDArray[np.int64]:
    return random.choice(np.array([-128, 127]), LONG)


@pytest.mark.parametrize("output", ["same", "f16", "f32"])
def test_int32_sums_of_maximal_operands_pass(output: str) -> None:
    problem = Problem(1, 1, LONG, "i8", output=output, scale="row")
    (factors,) = quantised.extremes(problem)
    size = quantised.magnitude(problem, factors)
    random = np.random.default_rng(7)
    for _ in range(4):
        total = row_of_maximal(random) @ row_of_maximal(random)
        sizes = [quantised.scale_size(problem, side) for side in (0, 1)]
        scales = (np.array(sizes) * random.uniform(0.8, 1.25, 2)).astype(np.float32)
        result = np.float32(total) * (scales[0] * scales[1])
        dtype = problem.output_element.dtype
        stored = numpy_types.decoded(numpy_types.encoded(np.array([[result]]), dtype))
        wanted = np.array([[float(total) * float(scales[0]) * float(scales[1])]])
        assert largest_error(problem, stored, wanted) <= tolerance(problem, magnitude=size)


def test_fp32_sums_of_maximal_int8_operands_fail() -> None:
    problem = Problem(1, 1, LONG, "i8", output="f32", scale="row")
    size = quantised.magnitude(problem, quantised.extremes(problem)[0])
    random = np.random.default_rng(7)
    products = (row_of_maximal(random) * row_of_maximal(random)).reshape(-1, 32)
    lanes = np.add.accumulate(products.astype(np.float32), dtype=np.float32)[-1]
    scale = quantised.scale_size(problem, 0) * quantised.scale_size(problem, 1)
    error = abs(float(lanes.astype(np.float64).sum()) - float(products.sum())) * scale
    assert error > tolerance(problem, magnitude=size)
