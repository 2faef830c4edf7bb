"""How far apart two problems are."""

from __future__ import annotations

import math

from autotune.problem.problem import Problem


def distance(a: Problem, b: Problem) -> float:
    """How far apart two problems are, in octaves: the Euclidean norm of log2 of the ratios of their
    sizes and batches."""
    pairs = ((a.m, b.m), (a.n, b.n), (a.k, b.k), (a.batch, b.batch))
    return math.hypot(*(math.log2(size / size_b) for size, size_b in pairs))
