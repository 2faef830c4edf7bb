"""Tolerances: correct kernels pass, lower precision fails."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support import numpy_types
from support.eight_bits import nearest
from support.oracle_errors import error_unit, largest_error
from support.served_precisions import SERVED
from support.tensor_core_sums import sums

from autotune.measure import oracle
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.oracle import (
    CURVES,
    SLOPE,
    UNIT_ROUNDOFF,
    activated,
    checked_accuracy,
    gates,
    library_tolerance,
    product,
    tolerance,
)
from autotune.problem import ELEMENT_TYPES, ELEMENTWISE, Problem
from autotune.problem.fields import ACTIVATIONS
from autotune.problem.problem import COMPARABLE, EXACT, relative_bound

Matrix = NDArray[np.float32]
Exact = NDArray[np.float64]

BITS = {"f32": 24, "f16": 11, "bf16": 8}
"""Mantissa bits of outputs."""


def operands(problem: Problem, seed: int = 0) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((problem.m, problem.k), dtype=np.float32)
    return a, rng.standard_normal((problem.k, problem.n), dtype=np.float32)


def added_one_by_one(a: Matrix, b: Matrix) -> Matrix:
    """The worst order: K sequential fused multiply-adds, each rounded to fp32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T.astype(np.float64), b.astype(np.float64), strict=True):
        total = (total + np.outer(column, row)).astype(np.float32)
    return total


def kept(values: NDArray[Any], bits: int, way: Callable[[Exact], Exact] = np.rint) -> Exact:
    """The values with mantissas of `bits` bits, rounded to the nearest or otherwise."""
    mantissa, exponent = np.frexp(values.astype(np.float64))
    result: Exact = np.ldexp(way(np.ldexp(mantissa, bits)), exponent - bits)
    return result


def cut_sums(a: Exact, b: Exact, total: Exact | None = None, together: int = 4) -> Exact:
    """The sums of products on a tensor core of the least accurate kind: `together` products and
    the sum so far are aligned to the largest of them, and cut to 23 bits behind its first, as is
    their sum."""
    total = np.zeros((a.shape[0], b.shape[1])) if total is None else total
    for first in range(0, a.shape[1], together):
        steps = range(first, min(first + together, a.shape[1]))
        addends = np.stack([total, *(np.outer(a[:, step], b[step]) for step in steps)])
        unit = np.frexp(np.abs(addends).max(axis=0))[1] - 24
        total = kept(np.ldexp(np.trunc(np.ldexp(addends, -unit)).sum(axis=0), unit), 24, np.trunc)
    return total


def of_compute(problem: Problem, a: NDArray[Any], b: NDArray[Any]) -> tuple[Exact, Exact]:
    """The operands as stored: rounded to their types."""

    def rounded(values: NDArray[Any], name: str) -> Exact:
        stored = numpy_types.encoded(values, ELEMENT_TYPES[name].dtype)
        return numpy_types.decoded(stored).astype(np.float64)

    of_a, of_b = problem.operand_types
    return rounded(a, of_a), rounded(b, of_b)


@pytest.mark.parametrize("k", [1, 2, 17, 256, 2048])
def test_sequential_fp32_sums_are_within_tolerance(k: int) -> None:
    problem = Problem(128, 128, k)
    a, b = operands(problem)
    error = np.abs(added_one_by_one(a, b) - product(problem, a, b)).max()
    assert error <= tolerance(problem)


@pytest.mark.parametrize("output", ["same", "f32"])
@pytest.mark.parametrize("compute", ["f16", "bf16"])
@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_sums_cut_by_tensor_cores_are_within_tolerance(k: int, compute: str, output: str) -> None:
    problem = Problem(64, 64, k, compute, output=output)
    a, b = of_compute(problem, *operands(problem))
    result = kept(cut_sums(a, b), BITS[problem.output_type])
    assert largest_error(problem, result, product(problem, a, b)) <= tolerance(problem)


@pytest.mark.parametrize("compute", ["f16", "tf32"])
def test_long_sums_cut_by_tensor_cores_are_within_tolerance(compute: str) -> None:
    problem = Problem(8, 8, 40_000, compute, output="f32")
    a, b = of_compute(problem, *operands(problem))
    result = cut_sums(kept(a, 11), kept(b, 11))
    assert largest_error(problem, result, product(problem, a, b)) <= tolerance(problem)


@pytest.mark.parametrize("way", [np.rint, np.trunc], ids=["rounded", "cut"])
@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_tf32_operands_are_within_tolerance(k: int, way: Callable[[Exact], Exact]) -> None:
    problem = Problem(64, 64, k, "tf32")
    a, b = operands(problem)
    result = cut_sums(kept(a, 11, way), kept(b, 11, way))
    assert largest_error(problem, result, product(problem, a, b)) <= tolerance(problem)


def three_products(a: Matrix, b: Matrix, way: Callable[[Exact], Exact], chunk: int = 32) -> Exact:
    """Products of operands in two parts; sums leave the tensor cores after each chunk."""
    (high_a, low_a), (high_b, low_b) = (
        (high, kept(whole - high, 11, way)) for whole in (a, b) for high in (kept(whole, 11, way),)
    )
    total = np.zeros((a.shape[0], b.shape[1]))
    for first in range(0, a.shape[1], chunk):
        part = slice(first, first + chunk)
        sums = cut_sums(low_a[:, part], high_b[part])
        sums = cut_sums(high_a[:, part], low_b[part], sums)
        total = kept(total + cut_sums(high_a[:, part], high_b[part], sums), 24)
    return total


@pytest.mark.parametrize("way", [np.rint, np.trunc], ids=["rounded", "cut"])
@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_three_tf32_products_are_within_tolerance(k: int, way: Callable[[Exact], Exact]) -> None:
    problem = Problem(64, 64, k, "tf32x3")
    a, b = operands(problem)
    result = three_products(a, b, way)
    assert largest_error(problem, result, product(problem, a, b)) <= tolerance(problem)


@pytest.mark.parametrize("compute", SERVED)
@pytest.mark.parametrize("k", [1, 17, 2048])
def test_ieee_sums_are_within_every_tolerance(k: int, compute: str) -> None:
    problem = Problem(64, 64, k, compute)
    a, b = of_compute(problem, *operands(problem))
    result = kept(
        added_one_by_one(a.astype(np.float32), b.astype(np.float32)), BITS[problem.output_type]
    )
    assert largest_error(problem, result, product(problem, a, b)) <= tolerance(problem)


@pytest.mark.parametrize("compute", ["f32", "tf32x3"])
@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_tf32_products_are_beyond_the_tolerance_of_fp32(k: int, compute: str) -> None:
    problem = Problem(128, 128, k, compute)
    a, b = operands(problem)
    coarse = product(problem, kept(a, 11), kept(b, 11))
    assert largest_error(problem, coarse, product(problem, a, b)) > tolerance(problem)


@pytest.mark.parametrize("compute", SERVED)
@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_missing_product_is_beyond_tolerance(k: int, compute: str) -> None:
    problem = Problem(64, 64, k, compute)
    a, b = of_compute(problem, *operands(problem))
    short = kept(product(problem, a * (np.arange(k) < k - 1), b), BITS[problem.output_type])
    assert largest_error(problem, short, product(problem, a, b)) > tolerance(problem)


@pytest.mark.parametrize("compute", SERVED)
@pytest.mark.parametrize("k", [64, 4096])
def test_misplaced_elements_are_beyond_tolerance(k: int, compute: str) -> None:
    problem = Problem(64, 64, k, compute)
    wanted = product(problem, *operands(problem))
    misplaced = kept(np.roll(wanted, 1, axis=1), BITS[problem.output_type])
    allowed = tolerance(problem) + problem.output_element.roundoff * np.abs(wanted)
    wrong = np.abs(misplaced - wanted) > allowed
    assert wrong.mean() > 0.98


def test_tolerance_has_the_stated_value() -> None:
    assert tolerance(Problem(1, 1, 100), 0.5, -2.0) == 2.0**-24 * (0.5 * 864 + 32)


@pytest.mark.parametrize(
    ("compute", "sum_error"),
    [
        ("tf32", 2400 + 2000 + 64 + 2**13 * (130 + 128)),
        ("tf32x3", 1600 + 640 + 1664),
        ("f16", 2400 + 2000 + 64),
        ("bf16", 2400 + 2000 + 64),
    ],
)
def test_tensor_core_tolerances_have_the_stated_values(compute: str, sum_error: float) -> None:
    problem = Problem(1, 1, 100, compute, output="f32")
    assert tolerance(problem, 0.5, -2.0) == 2.0**-24 * (0.5 * sum_error + 32)


@pytest.mark.parametrize(("compute", "unit"), [("f16", 2.0**-11), ("bf16", 2.0**-8)])
def test_rounding_to_16_bits_is_no_error(compute: str, unit: float) -> None:
    problem, value = Problem(1, 1, 1, compute), np.array([[1 + unit]])
    errors = [largest_error(problem, np.array([[result]]), value) for result in (1, 1 - unit)]
    assert errors == pytest.approx([0, unit], rel=0.01)


def test_nan_is_an_error() -> None:
    wanted = np.ones((1, 2))
    assert np.isnan(largest_error(Problem(1, 2, 1, "f16"), np.array([[np.nan, 1]]), wanted))


def test_library_may_round_before_the_activation() -> None:
    problem = Problem(64, 64, 256, "bf16", epilogue="gelu")
    a, b = of_compute(problem, *operands(problem))
    between = kept(product(Problem(64, 64, 256), a, b), 8)
    twice = kept(
        product(Problem(1, 4096, 1, epilogue="gelu"), np.ones((1, 1)), between.reshape(1, -1)), 8
    )
    error = largest_error(problem, twice.reshape(64, 64), product(problem, a, b))
    assert tolerance(problem) < error <= library_tolerance(problem)


def test_library_with_fp32_output_is_judged_like_a_kernel() -> None:
    problem = Problem(64, 64, 256, "bf16", output="f32")
    assert library_tolerance(problem) == tolerance(problem)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_product_reads_operands_as_stored(layout: str) -> None:
    a, b = operands(Problem(3, 4, 5))
    c = np.ones((3, 4), np.float32)
    stored_a = a if layout[0] == "n" else a.T
    stored_b = b if layout[1] == "n" else b.T
    result = product(Problem(3, 4, 5, layout=layout), stored_a, stored_b, c, alpha=2, beta=3)
    wanted = 2 * np.einsum("mk,kn->mn", a.astype(np.float64), b.astype(np.float64)) + 3
    np.testing.assert_allclose(result, wanted, rtol=1e-14, atol=1e-14)


def test_beta_zero_ignores_nan_in_c() -> None:
    a, b = operands(Problem(3, 4, 5))
    nan = np.full((3, 4), np.nan, np.float32)
    assert np.isfinite(product(Problem(3, 4, 5), a, b, nan)).all()


def test_product_of_a_batch_applies_the_epilogue_to_each() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((2, 3, 5), dtype=np.float32)
    b = rng.standard_normal((4, 5), dtype=np.float32)  # shared by the whole batch
    bias = np.array([-9, 0, 9, 99], np.float32)
    problem = Problem(3, 4, 5, layout="nt", batch=2, epilogue="bias_relu")
    wanted = [np.maximum(matrix.astype(np.float64) @ b.T + bias, 0) for matrix in a]
    np.testing.assert_allclose(product(problem, a, b, bias=bias), wanted, rtol=1e-6)


def test_gelu_is_exact() -> None:
    ones, x = np.ones((1, 1), np.float32), np.array([[-3, -1, 0, 0.5, 2]], np.float32)
    result = product(Problem(1, 5, 1, epilogue="gelu"), ones, x)
    # x times the standard normal distribution function, from its tables.
    np.testing.assert_allclose(
        result[0], [-3 * 0.0013499, -0.1586553, 0, 0.5 * 0.6914625, 2 * 0.9772499], atol=1e-6
    )


def test_tanh_gelu_and_silu_have_the_values_of_pytorch() -> None:
    ones, x = np.ones((1, 1), np.float32), np.array([[-3, -1, 0, 0.5, 2]], np.float32)
    # torch.nn.functional.gelu(x, approximate="tanh") and silu(x) for float64.
    wanted = {
        "gelu_tanh": [-0.003637392, -0.158808009, 0, 0.345714010, 1.954597695],
        "silu": [-0.142277620, -0.268941421, 0, 0.311229665, 1.761594156],
    }
    for epilogue, values in wanted.items():
        result = product(Problem(1, 5, 1, epilogue=epilogue), ones, x)
        np.testing.assert_allclose(result[0], values, atol=1e-9)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_of_infinities_are_those_of_the_kernels(activation: str) -> None:
    x = np.array([-np.inf, np.inf, np.nan])
    least = 0 if activation in ("relu", "gelu") else np.nan
    np.testing.assert_allclose(activated(x, activation), [least, np.inf, np.nan], atol=1e-300)


@pytest.mark.parametrize("activation", CURVES)
def test_no_activation_is_steeper_than_its_bound(activation: str) -> None:
    x = np.linspace(-9, 9, 180_001)
    steepest = np.abs(np.diff(activated(x, activation)) / np.diff(x)).max()
    assert 1.09 < steepest < SLOPE


def in_fp32(value: Matrix, bias: Matrix, epilogue: str) -> Matrix:
    """The epilogue with a rounding to fp32 after each step."""
    if epilogue.startswith("bias"):
        value = value + bias
    activation = Problem(1, 1, 1, "bf16", epilogue=epilogue).activation
    if activation == "relu":
        value = np.maximum(value, np.float32(0))
    elif activation is not None:
        value = value * CURVES[activation](value.astype(np.float64)).astype(np.float32)
    return value


@pytest.mark.parametrize("epilogue", ["residual", "bias_residual"])
@pytest.mark.parametrize("k", [1, 17, 512])
def test_residuals_are_within_tolerance(k: int, epilogue: str) -> None:
    problem = Problem(128, 128, k, "bf16", epilogue=epilogue, output="f32")
    a, b = (x.astype(np.float32) for x in of_compute(problem, *operands(problem)))
    random = np.random.default_rng(1)
    bias, residual = (random.standard_normal(size, np.float32) for size in (128, (128, 128)))
    result = in_fp32(added_one_by_one(a, b), bias, epilogue) + residual
    wanted = product(problem, a, b, bias=bias) + residual
    assert np.abs(result - wanted).max() <= tolerance(problem)
    without = product(problem, a, b, bias=bias)
    assert np.abs(result - without).max() > tolerance(problem)


@pytest.mark.parametrize("k", [1, 17, 512])
def test_gates_in_fp32_are_within_tolerance(k: int) -> None:
    problem = Problem(128, 128, k, "bf16", epilogue="swiglu", output="f32")
    a, b = (x.astype(np.float32) for x in of_compute(problem, *operands(problem)))
    gate, up = gates(added_one_by_one(a, b).astype(np.float64))
    result = in_fp32(gate.astype(np.float32), np.zeros(1, "f4"), "silu") * up.astype(np.float32)
    sums, allowed = product(replace(problem, epilogue="none"), a, b), tolerance(problem)
    wanted, unit = product(problem, a, b), error_unit(sums, allowed)
    assert wanted.shape == (128, 64)
    assert largest_error(problem, result, wanted, unit) <= allowed
    swapped = activated(up, "silu") * gate
    assert largest_error(problem, swapped, wanted, unit) > allowed


@pytest.mark.parametrize("epilogue", ELEMENTWISE[1:])
@pytest.mark.parametrize("k", [1, 17, 512])
def test_epilogues_in_fp32_are_within_tolerance(k: int, epilogue: str) -> None:
    problem = Problem(128, 128, k, epilogue=epilogue)
    (a, b), bias = operands(problem), np.random.default_rng(1).standard_normal(128, np.float32)
    result = in_fp32(added_one_by_one(a, b), bias, epilogue)
    assert np.abs(result - product(problem, a, b, bias=bias)).max() <= tolerance(problem)


@pytest.mark.parametrize("output", ["same", "f32"])
@pytest.mark.parametrize(
    ("compute", "k"), [("f32", 1), ("f32", 17), ("f32", 256), ("f16", 1), ("f16", 17)]
)
@pytest.mark.parametrize(("activation", "other"), [("gelu", "gelu_tanh"), ("gelu_tanh", "gelu")])
def test_the_other_gelu_is_beyond_tolerance(
    activation: str, other: str, compute: str, output: str, k: int
) -> None:
    problem = Problem(128, 128, k, compute, epilogue=activation, output=output)
    a, b = of_compute(problem, *operands(problem))
    result = product(replace(problem, epilogue=other), a, b)
    wanted = product(problem, a, b)
    assert np.abs(result - wanted).max() > tolerance(problem)


@pytest.mark.parametrize("epilogue", ["bias", "bias_relu", "bias_gelu"])
def test_shifted_bias_is_beyond_tolerance(epilogue: str) -> None:
    problem = Problem(64, 64, 256, epilogue=epilogue)
    (a, b), bias = operands(problem), np.random.default_rng(1).standard_normal(64, np.float32)
    shifted = product(problem, a, b, bias=np.roll(bias, 1))
    assert np.abs(shifted - product(problem, a, b, bias=bias)).max() > tolerance(problem)


def relative_error(problem: Problem, a: Matrix, b: Matrix) -> float:
    wanted = product(problem, a, b)
    return float(np.linalg.norm(added_one_by_one(a, b) - wanted) / np.linalg.norm(wanted))


def test_equal_accuracy_passes_at_the_fewest_elements() -> None:
    problem = Problem(16, COMPARABLE // 16, 256)
    ratios = []
    for seed in range(100):
        a, b = operands(problem, seed)
        order = np.random.default_rng(seed).permutation(problem.k)
        baseline_error = relative_error(problem, a, b)
        ratios.append(relative_error(problem, a[:, order], b[order]) / baseline_error)
    assert max(ratios) < problem.precision.accuracy
    # The standard deviation that `COMPARABLE` states.
    assert np.std(ratios) == pytest.approx(1.73 / COMPARABLE**0.5, rel=0.25)


@pytest.mark.parametrize(
    ("compute", "baseline_error", "times"),
    [("f32", 1e-6, 1.5), ("tf32x3", 1e-6, 2), ("tf32", 1e-3, 1.5), ("f16", 1e-3, 1.5)],
)
def test_relative_error_may_slightly_exceed_the_baselines(
    compute: str, baseline_error: float, times: float
) -> None:
    assert relative_bound(Problem(64, 64, 4096, compute), baseline_error) == pytest.approx(
        times * baseline_error
    )


def off(problem: Problem, result: NDArray[Any], a: NDArray[Any], b: NDArray[Any]) -> float:
    """The relative error of a result."""
    wanted = product(problem, a, b)
    return float(np.linalg.norm(result - wanted) / np.linalg.norm(wanted))


@pytest.mark.parametrize("k", [1, 64])
@pytest.mark.parametrize("compute", ["f16", "bf16"])
def test_one_rounding_to_16_bits_is_accepted(compute: str, k: int) -> None:
    problem = Problem(64, 64, k, compute)
    a, b = of_compute(problem, *operands(problem))
    once = kept(product(problem, a, b), BITS[compute])
    coarser = kept(product(problem, a, b), BITS[compute] - 1)
    bound = relative_bound(problem, 0.0)
    assert off(problem, once, a, b) <= bound < off(problem, coarser, a, b)


@pytest.mark.parametrize("k", [1, 64])
def test_tf32_operands_have_to_be_rounded_to_nearest(k: int) -> None:
    problem = Problem(64, 64, k, "tf32")
    a, b = operands(problem)
    errors = [
        off(problem, product(problem, kept(a, 11, way), kept(b, 11, way)), a, b)
        for way in (np.rint, np.trunc)
    ]
    assert errors[0] <= relative_bound(problem, 0.0) == 2.0**-11 < errors[1]


@pytest.mark.parametrize(("way", "enough"), [(np.rint, True), (np.trunc, False)])
def test_exact_baseline_accepts_only_rounded_parts(
    way: Callable[[Exact], Exact], enough: bool
) -> None:
    problem = Problem(64, 64, 1, "tf32x3")
    a, b = operands(problem)
    baseline_error = off(problem, product(problem, a, b).astype(np.float32), a, b)
    accepted = off(problem, three_products(a, b, way), a, b) <= relative_bound(
        problem, baseline_error
    )
    assert accepted == enough


@pytest.mark.parametrize("baseline_error", [0.0, 0.1 * UNIT_ROUNDOFF])
def test_exact_baseline_accepts_a_few_roundings(baseline_error: float) -> None:
    assert relative_bound(Problem(64, 64, 1), baseline_error) == EXACT


@pytest.mark.parametrize(
    ("problem", "baseline_error"),
    [(Problem(64, 64, 64), None), (Problem(1, 511, 64), 1e-9), (Problem(1, 1, 10**6), 1e-9)],
)
def test_bound_is_infinite_if_errors_cannot_be_compared(
    problem: Problem, baseline_error: float | None
) -> None:
    assert relative_bound(problem, baseline_error) == math.inf


def test_batch_counts_towards_comparable_elements() -> None:
    assert relative_bound(Problem(1, 1, 64, batch=512), 1e-6) == pytest.approx(1.5e-6)


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
    factor = oracle.operand_factor(problem, 0)
    assert factor * oracle.LARGEST_NORMAL == 448.0
    assert factor * oracle.scale_size(problem, 0) == pytest.approx(1.0)
    assert 1.25**2 < oracle.product_size(problem) < 1.25**2 * 1.2


@pytest.mark.parametrize(("k", "factor"), [(64, 16.0), (4096, 8.0), (10**6, 2.0)])
def test_fp16_holds_integer_products_without_scales(k: int, factor: float) -> None:
    problem = Problem(64, 64, k, "i8", "nt", output="f16")
    assert oracle.operand_factor(problem, 0) == factor
    assert oracle.operand_factor(Problem(64, 64, k, "i8", "nt"), 0) == 32.0


def test_extreme_operands_leave_out_what_overflows() -> None:
    assert oracle.extremes(Problem(8, 8, 8, "bf16")) == ()
    assert len(oracle.extremes(Problem(8, 8, 8, "f8", scale="row", output="f16"))) == 2
    assert len(oracle.extremes(Problem(8, 8, 8, "f8", output="f16"))) == 1
    assert len(oracle.extremes(Problem(8, 8, 8, "i8"))) == 1


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
        size = oracle.UNEVEN * oracle.scale_size(problem, side) if scale == "row" else 1.0
        numbers = (normal * np.float32(oracle.operand_factor(problem, side))).astype(np.float32)
        if compute != "f16":
            numbers = nearest(numbers, problem.operand_types[side])
        variance *= float(np.mean((size * numbers.astype(np.float64)) ** 2))
    # The product of two normal numbers exceeds t once in exp(t) times.
    assert variance * 32 < oracle.LARGEST_F16
    assert oracle.operand_factor(Problem(64, 64, k, "f8", "nt", epilogue="swiglu"), 0) == 1.0


LONG = 9_000_000


@pytest.mark.parametrize("compute", ["f8", "i8"])
def test_fp16_holds_scaled_maximal_operands_at_any_k(compute: str) -> None:
    problem = Problem(1, 1, LONG, compute, "nt", output="f16", scale="row")
    assert len(oracle.extremes(problem)) >= 1
    size = 1.0
    for side, element in enumerate(problem.operand_elements):
        size *= element.largest * oracle.UNEVEN * oracle.scale_size(problem, side)
    # A sum of K numbers of one size and random signs exceeds 8 sqrt(K) of it once in 1e14 times.
    assert size * 8 * LONG**0.5 < oracle.LARGEST_F16


@pytest.mark.parametrize("k", [LONG, 10**8, 2**31 - 1])
@pytest.mark.parametrize("compute", ["f16", "f8", "i8"])
def test_fp16_holds_normal_operands_at_any_k(compute: str, k: int) -> None:
    problem = Problem(1, 1, k, compute, "nt", output="same" if compute == "f16" else "f16")
    factors = oracle.operand_factor(problem, 0) * oracle.operand_factor(problem, 1)
    rounding = 1 / 12 if compute == "i8" else 0.0
    assert (factors + rounding) * 7 * k**0.5 < oracle.LARGEST_F16


def test_maximal_int8_operands_stay_within_int32() -> None:
    assert len(oracle.extremes(Problem(1, 1, LONG, "i8", output="i32"))) == 1
    assert oracle.extremes(Problem(1, 1, 2**31 - 1, "i8", output="i32")) == ()


def row_of_maximal(random: np.random.Generator) -> NDArray[np.int64]:
    return random.choice(np.array([-128, 127]), LONG)


@pytest.mark.parametrize("output", ["same", "f16", "f32"])
def test_int32_sums_of_maximal_operands_pass(output: str) -> None:
    problem = Problem(1, 1, LONG, "i8", output=output, scale="row")
    (factors,) = oracle.extremes(problem)
    size = oracle.product_size(problem, factors)
    random = np.random.default_rng(7)
    for _ in range(2):
        total = row_of_maximal(random) @ row_of_maximal(random)
        sizes = [oracle.scale_size(problem, side) for side in (0, 1)]
        scales = (np.array(sizes) * random.uniform(0.8, 1.25, 2)).astype(np.float32)
        result = np.float32(total) * (scales[0] * scales[1])
        dtype = problem.output_element.dtype
        stored = numpy_types.decoded(numpy_types.encoded(np.array([[result]]), dtype))
        wanted = np.array([[float(total) * float(scales[0]) * float(scales[1])]])
        assert largest_error(problem, stored, wanted) <= tolerance(problem, magnitude=size)


def test_fp32_sums_of_maximal_int8_operands_fail() -> None:
    problem = Problem(1, 1, LONG, "i8", output="f32", scale="row")
    size = oracle.product_size(problem, oracle.extremes(problem)[0])
    random = np.random.default_rng(7)
    products = (row_of_maximal(random) * row_of_maximal(random)).reshape(-1, 32)
    lanes = np.add.accumulate(products.astype(np.float32), dtype=np.float32)[-1]
    scale = oracle.scale_size(problem, 0) * oracle.scale_size(problem, 1)
    error = abs(float(lanes.astype(np.float64).sum()) - float(products.sum())) * scale
    assert error > tolerance(problem, magnitude=size)


PROBLEM = Problem(64, 64, 64)
VENDOR_ERROR = 5.7e-7


def measured(error: float | None) -> Measurement:
    return Measurement(100.0, relative_error=error)


def test_inaccurate_candidate_fails_with_the_numbers() -> None:
    assert checked_accuracy(PROBLEM, measured(1.2e-6), VENDOR_ERROR) == Failure(
        "accuracy",
        "relative error 1.2e-06 is 2.1 times the vendor library's 5.7e-07; 8.6e-07 is allowed",
    )


@pytest.mark.parametrize("error", [0.0, 5.7e-7, 8.54e-7])
def test_up_to_1_5_times_the_baselines_error_is_accurate(error: float) -> None:
    assert checked_accuracy(PROBLEM, measured(error), VENDOR_ERROR) == measured(error)


def test_failure_beside_an_exact_baseline_says_so() -> None:
    assert checked_accuracy(PROBLEM, measured(2e-7), 0.0) == Failure(
        "accuracy",
        "relative error 2e-07 is more than the vendor library's 0; 1.2e-07 is allowed",
    )


def test_nan_is_inaccurate() -> None:
    assert isinstance(checked_accuracy(PROBLEM, measured(float("nan")), VENDOR_ERROR), Failure)


@pytest.mark.parametrize(("error", "vendor"), [(1.0, None), (None, VENDOR_ERROR)])
def test_unknown_errors_are_not_checked(error: float | None, vendor: float | None) -> None:
    assert checked_accuracy(PROBLEM, measured(error), vendor) == measured(error)


def test_failure_is_passed_through() -> None:
    crash = Failure("crash", "illegal access")
    assert checked_accuracy(PROBLEM, crash, VENDOR_ERROR) == crash


def test_too_few_elements_are_not_compared() -> None:
    assert checked_accuracy(Problem(8, 8, 64), measured(1e-6), VENDOR_ERROR) == measured(1e-6)
