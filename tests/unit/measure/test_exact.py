"""Operands of small integers: which sums hold them without rounding."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from autotune.measure import exact
from autotune.problem import Problem


def test_sums_of_14_bits_are_exact_at_any_k() -> None:
    k = 3_000_000  # above `NEAR`
    for seed in range(2):
        pairing = exact.Draw.of(Problem(1, 1, k, "f8", accumulate="fast")).pairing
        left, right = (
            exact.factors(side, np.array([0]), k, seed + 9 * side, pairing) for side in (0, 1)
        )
        products = left * right
        assert pow(pairing.factor, -1, pairing.paired) <= exact.NEAR
        assert np.abs(np.add.accumulate(products[0], dtype=np.float64)).max() < 2**14 / 2


def test_partners_are_at_most_so_far_apart() -> None:
    for seed in range(20):
        pairing = exact.Pairing.draw(100_000, Random(seed), farthest=1000)
        places = np.arange(pairing.paired)
        order = (places * pairing.factor + pairing.shift) % pairing.paired
        at = np.argsort(order)
        apart = (at[1::2] - at[::2]) % pairing.paired
        assert set(apart) == {apart[0]}
        assert apart[0] <= 1000


@pytest.mark.parametrize("k", [65, 4100, 8191, 65537])
def test_partial_sums_of_a_library_are_exact_in_bfloat16(k: int) -> None:
    rows, random = np.arange(32), np.random.default_rng(k)
    for seed in range(4):
        pairing = exact.Draw.of_library(Problem(32, 32, k, "bf16")).pairing
        left, right = (exact.factors(side, rows, k, seed + 9 * side, pairing) for side in (0, 1))
        products = (left * right).astype(np.float64)
        for parts in (2, 5, 64):
            sums = np.stack([part.sum(1) for part in np.array_split(products, parts, 1)])
            order = random.permutation(parts)
            assert np.abs(np.add.accumulate(sums[order])).max() <= 256
        assert np.abs(products.sum(1)).max() <= 13


@pytest.mark.parametrize("k", [65, 4100, 8191, 65537])
def test_product_without_the_tail_of_k_is_wrong(k: int) -> None:
    rows = np.arange(32)
    for seed in range(4):
        pairing = exact.Draw.of_library(Problem(32, 32, k, "bf16")).pairing
        left, right = (exact.factors(side, rows, k, seed + 9 * side, pairing) for side in (0, 1))
        tail = k - k % 64
        assert np.any((left[:, tail:] @ right[:, tail:].T) != 0)
