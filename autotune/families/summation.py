"""How the K products of an element of C are added up: what decides its error, and its bits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
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


@dataclass(frozen=True)
class SummationOrder:
    """The order in which the products of an element of C are added up.

    Of two configurations of the same order, for problems that differ in M alone, each element has
    the same bits. The reverse does not hold: different orders may round to the same bits.

    A tree is a text. `1024` is a chain of instructions over 1024 of K, `+(4*1024)` four such chains
    added up in fp32 from zero, in the order of K.

    Attributes:
        instruction: the instruction that multiplies, with everything else that decides how it
            rounds: its precision, the operand that it takes as A, and where it reads this from.
        tree: how the results of the instructions are added up.
    """

    instruction: str
    tree: str

    def __str__(self) -> str:
        return f"{self.instruction} {self.tree}"


EXACT = SummationOrder("exact", "integers")
"""Every order of integers: their sums are never rounded."""


def unordered(problem: Problem) -> None:
    """No order: that of a family whose order depends on the alignment of its operands, or that no
    search tries."""
    del problem


def from_zero(parts: Iterable[str]) -> str:
    """The tree of parts that are added up from zero, one after the other."""
    groups = [(part, len([*equal])) for part, equal in itertools.groupby(parts)]
    return f"+({','.join(f'{count}*{part}' if count > 1 else part for part, count in groups)})"


def chain(length: int, run: int = 0) -> str:
    """The tree of an accumulator over `length` of K, promoted after each `run` unless that is 0."""
    if not run:
        return str(length)
    whole, rest = divmod(length, run)
    return from_zero([str(run)] * whole + [str(rest)] * (rest > 0))


def sliced(tree: str, slices: int, piece: int) -> str:
    """The tree of slices that take turns at `piece` of K each and are added up in their order."""
    return tree if slices == 1 else f"{slices}/{piece}({tree})"


def split_evenly(iterations: int, splits: int) -> list[int]:
    """The k-iterations of each split, the first ones longer by one."""
    least, longer = divmod(iterations, splits)
    return [least + (split < longer) for split in range(splits)]


def split_by_longest(iterations: int, splits: int) -> list[int]:
    """The k-iterations of each split, all of the longest one's length but the last ones."""
    longest = ceil_div(iterations, splits)
    starts = [min(iterations, split * longest) for split in range(splits + 1)]
    return [end - start for start, end in itertools.pairwise(starts)]
