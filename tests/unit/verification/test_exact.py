"""Operands of small integers: which sums hold them without rounding."""

from __future__ import annotations

from random import Random

import numpy as np

from autotune.problem import Problem
from autotune.verification import exact


def test_sums_of_14_bits_are_exact_at_any_k() -> None:
    k = 9_000_000
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
