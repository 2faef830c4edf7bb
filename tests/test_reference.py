"""The stated tolerance admits correct fp32 sums and refuses lower precision."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.problem import Problem
from autotune.reference import product, tolerance

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
