"""Sizes of random shapes."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from programs import log_uniform

SMALLEST, LARGEST = (1, 16, 16), (8192, 16384, 16384)


def drawn_sizes(random: Random, steps: Sequence[int]) -> tuple[int, int, int]:
    """M, N and K, log-uniform, cut to multiples of one of the steps; smaller ones stay."""
    sizes = [*map(round, log_uniform(random, SMALLEST, LARGEST))]
    step = random.choice(steps)
    m, n, k = (size // step * step if size >= step else size for size in sizes)
    return m, n, k
