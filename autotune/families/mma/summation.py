"""How `mma` adds up the products of an element of C, and the rule on the error of that."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared.accuracy import ACCURACY, possible_limit
from autotune.families.summation import (
    EXACT,
    Summation,
    SummationOrder,
    chain,
    from_zero,
    in_order,
    sliced,
    split_by_longest,
    split_length,
)
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


@dataclass(frozen=True)
class MmaSums:
    """The parameters that decide in which order products are added up."""

    slices: int
    bk: int
    split_k: int
    promote: int


def summation(p: MmaSums, problem: Problem) -> Summation:
    """Each slice adds up its share of each promoted run; slices and blocks are added up then."""
    length = split_length(problem.k, p.split_k, p.bk)
    run = min(length, p.promote * p.bk) if p.promote else length
    return Summation(in_order(length / run, p.slices, p.split_k), run / p.slices)


@dataclass(frozen=True)
class MmaOrder(MmaSums):
    """The parameters that decide the order of summation."""

    swap: int


def summation_order(p: MmaOrder, problem: Problem) -> SummationOrder:
    """Each slice is a chain, promoted or not; slices are added up, then splits."""
    if problem.precision.operand.integer:
        return EXACT
    steps = split_by_longest(ceil_div(problem.k, p.bk), p.split_k)
    tree = [
        sliced(chain(count * p.bk, p.promote * p.bk), p.slices, p.bk // p.slices) for count in steps
    ]
    instruction = f"mma {problem.compute} swap={p.swap}"
    return SummationOrder(instruction, from_zero(tree) if p.split_k > 1 else tree[0])


def _error_fault(sums: MmaSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""
