"""How the K products of an element of C are added up: what decides the error of the sum."""

from __future__ import annotations

from typing import NamedTuple

from autotune.problem import Problem
from autotune.problem.integers import ceil_div


class Summation(NamedTuple):
    """The lengths of a configuration's sums.

    Attributes:
        length: terms of the one sum, added up in order in fp32, whose rounding errors are as large
            as those of all fp32 additions of an element together.
        run: products that tensor cores add up, truncating, before the sum is added in fp32; 0
            without tensor cores.
    """

    length: float
    run: float = 0.0


def sequential(problem: Problem) -> Summation:
    """One sum of all products, in order."""
    return Summation(problem.k)


def in_order(*counts: float) -> float:
    """The length of sums of several levels, each of which adds up the results of the one before.

    A sum of n terms in order has the error variance of a random walk: proportional to n, relative
    to its own size. Levels add up their variances; a level of one term adds nothing.
    """
    return sum(count for count in counts if count > 1)


def split_length(k: int, splits: int, step: int) -> float:
    """The mean length of the parts of a K that is split in whole steps, weighted by their errors:
    parts of unequal lengths err like longer ones."""
    longest = ceil_div(ceil_div(k, step), splits) * step
    whole, rest = divmod(k, longest)
    return (whole * longest**2 + rest**2) / k
