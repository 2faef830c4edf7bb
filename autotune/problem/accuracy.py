"""The relative error (Frobenius norms) that a result may have beside the vendor baseline's."""

from __future__ import annotations

import math

from autotune.problem.problem import Problem

UNIT_ROUNDOFF = 2.0**-24

EXACT = 2 * UNIT_ROUNDOFF
"""A relative error that is always accepted: a few roundings, because the baseline may have one or
none, as at K = 1."""

COMPARABLE = 512
"""Elements of C needed to compare two relative errors.

An error has an excess kurtosis of 4 (`autotune.measure.oracle.tolerance` has its law), so the
root mean square of n of them scatters by sqrt(6 / n) / 2, and the ratio of two by 1.73 / sqrt(n):
8 % at 512. A kernel that is as accurate as the baseline exceeds `Precision.accuracy` when that is
6.5 standard deviations off."""


def relative_bound(problem: Problem, baseline_error: float | None) -> float:
    """The largest relative error (Frobenius norms) allowed beside the vendor baseline's.

    Infinite if the baseline's is unknown, or if C has fewer than `COMPARABLE` elements: then the
    tolerance of single elements alone decides.
    """
    if baseline_error is None or problem.batch * problem.m * problem.width < COMPARABLE:
        return math.inf
    return max(problem.precision.accuracy * baseline_error, _always_accepted(problem))


def _always_accepted(problem: Problem) -> float:
    """A relative error accepted however small the baseline's is, which may be 0 at K = 1.

    Rounding both operands to tf32 causes 0.6 h, h = 2^-11, while the library may multiply in fp32;
    rounding C to 16 bits causes 0.42 of its roundoff. Splitting operands in two parts causes up to
    6.4 u, which is not accepted where K is so short that the library's sums err by less than half
    of that: there the kernel has to be as accurate as fp32. The 14 bits of fp8 sums cause
    1.3e-4 with exact accumulation and 2.1e-5 sqrt(K) with fast accumulation in the simulation of
    `autotune.measure.oracle.tolerance`; 1.5 times that is accepted.
    """
    error = problem.sum_error
    fp8 = error.accepted + error.accepted_drift * math.sqrt(problem.k)
    return problem.precision.operand_roundoff or EXACT + fp8 + problem.output_element.roundoff / 2
