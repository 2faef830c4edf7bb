"""Normal operands of 8 bits: the factors that bring N(0, 1) into a type's range, and their scales.

With scales they are quantised as a user would: the largest numbers of a row come close to the
type's largest, and the scale brings them back to N(0, 1). The scales differ by 0.8 to 1.25, so that
a scale of the wrong row shows. Without scales fp8 holds N(0, 1) as it is, int8 a multiple.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.problem import SCALE_BLOCK, Problem

LARGEST_NORMAL = 5.25
"""The normal number that becomes a type's largest; two in 10^7 are larger, and become it too."""

UNEVEN = 1.25
"""The largest scale, in units of the one that brings an operand back to N(0, 1)."""

INTEGER_FACTOR = 32.0
"""Factor of int8 operands without scales: 127 is the number 4."""

LARGEST_F16 = 65504.0
LARGEST_GATED = 255.0
"""The largest sums whose product fp16 holds."""

LARGEST_I32 = 2.0**31 - 1


def factor(problem: Problem, side: int) -> float:
    """The factor of the normal numbers of A (side 0) or B before they are rounded."""
    element = problem.operand_elements[side]
    if problem.scale != "none":
        return element.largest / LARGEST_NORMAL
    if not element.integer:
        return _fitting(problem, 1.0)
    if problem.gated or problem.output != "f16":
        return _fitting(problem, INTEGER_FACTOR)
    fitting = math.sqrt(LARGEST_F16 / largest_sum(problem.k))
    return 2.0 ** math.floor(math.log2(min(INTEGER_FACTOR, fitting)))


def scale_size(problem: Problem, side: int) -> float:
    """The size of the scales that undo `factor`."""
    return _fitting(problem, 1.0) / factor(problem, side)


def _fitting(problem: Problem, largest: float) -> float:
    """A factor up to `largest` of each operand with which an fp16 C holds the sums, or what gates
    make of them.

    With scales the factor is theirs. It makes room for `extremes` too, whose products are
    `LARGEST_NORMAL`^2 times as large as those of two normal numbers.
    """
    if problem.output_type != "f16":
        return largest
    most = LARGEST_GATED if problem.gated else LARGEST_F16
    if problem.scale != "none" and not problem.gated:
        most /= LARGEST_NORMAL**2
    return min(largest, math.sqrt(most / (UNEVEN**2 * largest_sum(problem.k))))


def largest_sum(k: int) -> float:
    """A bound on sums of `k` products of two normal numbers; `oracle.tolerance` derives it."""
    return 8 * math.sqrt(k) + 32


def magnitude(problem: Problem, factors: tuple[float, float] | None = None) -> float:
    """The products of two elements, in units of those of two normal numbers, at most.

    Args:
        problem: the problem.
        factors: the factors of A and B, if they are not those of `factor`; what they raise beyond
            a type's largest number is rounded to that.
    """
    product = 1.0
    for side, element in enumerate(problem.operand_elements):
        own = factor(problem, side)
        if element.bytes > 1:
            product *= own
            continue
        size = min(factors[side], element.largest) if factors else own
        scale = UNEVEN * scale_size(problem, side) if problem.scale != "none" else 1.0
        # Rounding enlarges a number by this much at most: half of the last bit, or of 1.
        rounding = 0.5 / size if element.integer else element.roundoff
        product *= size * scale * (1 + rounding)
    return product


def spread(problem: Problem, side: int, scales: NDArray[Any]) -> NDArray[np.float64]:
    """The scales of the elements of op(A) (side 0), (batch, m, k), or op(B), (batch, k, n), with
    sizes of 1 along which they are the same."""
    wide = scales.astype(np.float64)
    if problem.scale == "tensor":
        return wide.reshape(1, 1, 1)
    if problem.scale == "row":
        return wide.reshape(problem.batch, *((1, problem.n) if side else (problem.m, 1)))
    if side:
        columns = wide.repeat(SCALE_BLOCK, axis=1)[:, : problem.n].swapaxes(1, 2)
        scale_b: NDArray[np.float64] = columns.repeat(SCALE_BLOCK, axis=1)[:, : problem.k]
        return scale_b
    scale_a: NDArray[np.float64] = wide.swapaxes(1, 2).repeat(SCALE_BLOCK, axis=2)
    return scale_a[..., : problem.k]


def extremes(problem: Problem) -> tuple[tuple[float, float], ...]:
    """Factors of A and B for operands that are all maximal, and all denormal.

    None for types of more than 8 bits, none that is maximal where C or an int32 sum would overflow.
    """
    elements = problem.operand_elements
    if elements[0].bytes > 1:
        return ()
    a, b = (1e6 * element.largest for element in elements)
    overflows = problem.output == "f16" and (problem.scale == "none" or problem.gated)
    if elements[0].integer:
        largest = elements[0].largest * elements[1].largest * largest_sum(problem.k)
        overflows = overflows or largest > LARGEST_I32
    maximal = () if overflows else ((a, b),)
    if elements[0].integer:
        return maximal
    # Six denormal steps are still below the least normal number of e4m3; e5m2 has three.
    small_a, small_b = (2.5 * element.underflow for element in elements)
    return *maximal, (small_a, small_b)
