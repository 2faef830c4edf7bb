"""The table of errors on operands with outlier columns in docs/precisions.md, recomputed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.typing import NDArray
from support import eight_bits, quantising
from support.paths import ROOT
from support.tensor_core_sums import sums

from autotune.problem import SCALE_BLOCK

ROWS, COLUMNS, K = 32, 32, 1024
OUTLIERS = 4
"""Columns of A that are so many times larger than the others."""
LARGEST = np.float32(448)
ROW = re.compile(r"^\| ([\d,]+) \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \| ([\d.]+) % \|$", re.M)

Values = NDArray[np.float32]


def table() -> dict[float, list[float]]:
    text = (ROOT / "docs" / "precisions.md").read_text()
    section = text.partition("#### Outliers")[2].partition("\n#")[0]
    return {
        float(size.replace(",", "")): [float(error) / 100 for error in errors]
        for size, *errors in ROW.findall(section)
    }


def operands(size: float, weight: float) -> tuple[Values, Values]:
    """A, and B as (n, k), whose values for the outliers of A are `weight` times the others."""
    random = np.random.default_rng(16)
    a = random.standard_normal((ROWS, K), np.float32)
    b = random.standard_normal((COLUMNS, K), np.float32)
    outliers = random.choice(K, OUTLIERS, replace=False)
    a[:, outliers] *= np.float32(size)
    b[:, outliers] *= np.float32(weight)
    return a, b


def weights(b: Values, scale: str) -> tuple[Values, Values]:
    """B in e4m3, and the scales of the columns of op(B) in each 128 of K."""
    blocks = K // SCALE_BLOCK
    largest = np.abs(b).reshape(COLUMNS, blocks, SCALE_BLOCK).max(2)
    shared = largest.max(1 if scale == "row" else 0, keepdims=True)
    scales = np.broadcast_to(shared / LARGEST, (COLUMNS, blocks))
    return eight_bits.nearest(b / scales.repeat(SCALE_BLOCK, 1), "e4m3"), scales


def error(a: Values, b: Values, scale: str) -> float:
    """The relative error of quantising A and B and adding up with exact accumulation."""
    codes, scales = quantising.quantised(a[None], "e4m3", scale)
    quantised_a = eight_bits.decoded(codes[0], "e4m3")
    quantised_b, scales_b = weights(b, scale)
    products = quantised_a.T.astype(np.float64)[:, :, None] * quantised_b.T[:, None]
    factors = scales[0] if scale == "block" else scales
    promoted = sums(products, SCALE_BLOCK) * factors[:, :, None] * scales_b.T[:, None]
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    return float(np.linalg.norm(promoted.sum(0) - exact) / np.linalg.norm(exact))


@pytest.mark.parametrize("size", table())
def test_blocks_err_no_more_than_rows_on_outliers(size: float) -> None:
    row, block, *rest = table()[size]
    assert block <= row
    both = operands(size, 1.0)
    assert [error(*both, scale) for scale in ("row", "block")] == pytest.approx([row, block], 0.01)
    without = operands(size, 0.0)
    assert [error(*without, scale) for scale in ("row", "block")] == pytest.approx(rest, 0.01)


def test_table_of_outliers_is_found() -> None:
    assert list(table()) == [10.0, 100.0, 1000.0, 10000.0, 100000.0]
