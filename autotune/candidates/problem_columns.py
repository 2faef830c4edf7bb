"""A problem as a row of numbers, for what learns from recorded times."""

from __future__ import annotations

import math
from functools import lru_cache

from autotune.problem import Problem

OCTAVE, ALIGNED, KIND, STORED = 0.25, 0.125, 1.0, 0.5
MOST_ALIGNED = 4
"""As log2: kernels move 16 bytes at most, and where 16 divides a size every tile is whole."""


@lru_cache(maxsize=4096)
def problem_columns(problem: Problem) -> tuple[float, ...]:
    """Sizes, alignments, precision and layout: similar problems are near to each other."""
    sizes = (problem.m, problem.n, problem.k)
    return (
        *(OCTAVE * math.log2(size) for size in (*sizes, problem.batch)),
        *(ALIGNED * min(MOST_ALIGNED, (size & -size).bit_length() - 1) for size in sizes),
        *(KIND * kind for kind in (problem.element_bytes == 2, problem.products == 3)),
        KIND * (not problem.precision.on_tensor_cores),
        *(KIND * kind for kind in _eight_bit_kinds(problem)),
        *(STORED * (letter == "t") for letter in problem.layout),
    )


def _eight_bit_kinds(problem: Problem) -> tuple[bool, ...]:
    """Traits of problems of 8 bits; all false for others."""
    precision = problem.precision
    integer, fast = precision.sums == "integer", problem.accumulate == "fast"
    return precision.eight_bit, integer, fast, problem.scale == "block"
