"""The stated tolerance admits correct fp32 sums and refuses lower precision."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.problem import Problem
from autotune.reference import (
    ACCURACY,
    COMPARABLE,
    EXACT,
    UNIT_ROUNDOFF,
    product,
    relative_bound,
    tolerance,
)

Matrix = NDArray[np.float32]


def operands(problem: Problem, seed: int = 0) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((problem.m, problem.k), dtype=np.float32)
    return a, rng.standard_normal((problem.k, problem.n), dtype=np.float32)


def added_one_by_one(a: Matrix, b: Matrix) -> Matrix:
    """The worst order: K fused multiply-adds in a row, each rounded to fp32."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for column, row in zip(a.T.astype(np.float64), b.astype(np.float64), strict=True):
        total = (total + np.outer(column, row)).astype(np.float32)
    return total


def rounded_to_tf32(values: Matrix) -> Matrix:
    """10 bits of mantissa, ties away from zero, as the tensor cores take their operands."""
    bits = (values.view(np.uint32) + 0x1000) & 0xFFFFE000
    return bits.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("k", [1, 2, 17, 256, 2048])
def test_sequential_fp32_sums_are_within_tolerance(k: int) -> None:
    problem = Problem(128, 128, k)
    a, b = operands(problem)
    error = np.abs(added_one_by_one(a, b) - product(problem, a, b)).max()
    assert error <= tolerance(problem)


@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_tf32_products_are_beyond_tolerance(k: int) -> None:
    problem = Problem(128, 128, k)
    a, b = operands(problem)
    coarse = product(problem, rounded_to_tf32(a), rounded_to_tf32(b))
    assert np.abs(coarse - product(problem, a, b)).max() > tolerance(problem)


@pytest.mark.parametrize("k", [1, 17, 256, 2048])
def test_a_missing_product_is_beyond_tolerance(k: int) -> None:
    problem = Problem(64, 64, k)
    a, b = operands(problem)
    short = product(Problem(64, 64, k), a * (np.arange(k) < k - 1), b)
    assert np.abs(short - product(problem, a, b)).max() > tolerance(problem)


def test_tolerance_has_the_stated_value() -> None:
    assert tolerance(Problem(1, 1, 100), 0.5, -2.0) == 2.0**-24 * (0.5 * 864 + 32)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_product_reads_operands_as_they_are_stored(layout: str) -> None:
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
    b = rng.standard_normal((4, 5), dtype=np.float32)  # one for the whole batch
    bias = np.array([-9, 0, 9, 99], np.float32)
    problem = Problem(3, 4, 5, layout="nt", batch=2, epilogue="bias_relu")
    wanted = [np.maximum(one.astype(np.float64) @ b.T + bias, 0) for one in a]
    np.testing.assert_allclose(product(problem, a, b, bias=bias), wanted, rtol=1e-6)


def test_gelu_is_the_exact_one() -> None:
    one, x = np.ones((1, 1), np.float32), np.array([[-3, -1, 0, 0.5, 2]], np.float32)
    result = product(Problem(1, 5, 1, epilogue="gelu"), one, x)
    # x times the standard normal distribution function, from its tables.
    np.testing.assert_allclose(
        result[0], [-3 * 0.0013499, -0.1586553, 0, 0.5 * 0.6914625, 2 * 0.9772499], atol=1e-6
    )


def in_fp32(value: Matrix, bias: Matrix, epilogue: str) -> Matrix:
    """The epilogue with a rounding to fp32 after each step."""
    if epilogue.startswith("bias"):
        value = value + bias
    if epilogue.endswith("relu"):
        value = np.maximum(value, np.float32(0))
    if epilogue.endswith("gelu"):
        error_function = np.vectorize(math.erf)(value * np.float32(0.5**0.5)).astype(np.float32)
        value = value * (np.float32(0.5) + np.float32(0.5) * error_function)
    return value


@pytest.mark.parametrize("epilogue", ["bias", "relu", "bias_relu", "gelu", "bias_gelu"])
@pytest.mark.parametrize("k", [1, 17, 512])
def test_epilogues_in_fp32_are_within_tolerance(k: int, epilogue: str) -> None:
    problem = Problem(128, 128, k, epilogue=epilogue)
    (a, b), bias = operands(problem), np.random.default_rng(1).standard_normal(128, np.float32)
    result = in_fp32(added_one_by_one(a, b), bias, epilogue)
    assert np.abs(result - product(problem, a, b, bias=bias)).max() <= tolerance(problem)


@pytest.mark.parametrize("k", [1, 17, 256])
def test_the_approximate_gelu_is_beyond_tolerance(k: int) -> None:
    problem = Problem(128, 128, k, epilogue="gelu")
    a, b = operands(problem)
    x = a.astype(np.float64) @ b
    approximate = x * (1 + np.tanh((2 / np.pi) ** 0.5 * (x + 0.044715 * x**3))) / 2
    assert np.abs(approximate - product(problem, a, b)).max() > tolerance(problem)


@pytest.mark.parametrize("epilogue", ["bias", "bias_relu", "bias_gelu"])
def test_a_bias_of_the_next_column_is_beyond_tolerance(epilogue: str) -> None:
    problem = Problem(64, 64, 256, epilogue=epilogue)
    (a, b), bias = operands(problem), np.random.default_rng(1).standard_normal(64, np.float32)
    shifted = product(problem, a, b, bias=np.roll(bias, 1))
    assert np.abs(shifted - product(problem, a, b, bias=bias)).max() > tolerance(problem)


def relative_error(problem: Problem, a: Matrix, b: Matrix) -> float:
    wanted = product(problem, a, b)
    return float(np.linalg.norm(added_one_by_one(a, b) - wanted) / np.linalg.norm(wanted))


def test_equally_accurate_kernels_pass_at_the_fewest_elements_compared() -> None:
    problem = Problem(16, COMPARABLE // 16, 256)
    ratios = []
    for seed in range(100):
        a, b = operands(problem, seed)
        order = np.random.default_rng(seed).permutation(problem.k)
        vendor = relative_error(problem, a, b)
        ratios.append(relative_error(problem, a[:, order], b[order]) / vendor)
    assert max(ratios) < ACCURACY
    # The standard deviation that `COMPARABLE` states.
    assert np.std(ratios) == pytest.approx(1.73 / COMPARABLE**0.5, rel=0.25)


def test_a_relative_error_may_be_one_and_a_half_of_the_vendors() -> None:
    assert relative_bound(Problem(64, 64, 4096), 1e-6) == pytest.approx(1.5e-6)


@pytest.mark.parametrize("vendor", [0.0, 0.1 * UNIT_ROUNDOFF])
def test_an_exact_vendor_rejects_nobody_for_a_rounding(vendor: float) -> None:
    assert relative_bound(Problem(64, 64, 1), vendor) == EXACT


@pytest.mark.parametrize(
    ("problem", "vendor"),
    [(Problem(64, 64, 64), None), (Problem(1, 511, 64), 1e-9), (Problem(1, 1, 10**6), 1e-9)],
)
def test_what_cannot_be_compared_is_not(problem: Problem, vendor: float | None) -> None:
    assert relative_bound(problem, vendor) == math.inf


def test_a_batch_counts_as_elements_to_compare() -> None:
    assert relative_bound(Problem(1, 1, 64, batch=512), 1e-6) == pytest.approx(1.5e-6)
