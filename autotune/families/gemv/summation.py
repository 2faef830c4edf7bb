"""How `gemv` adds up the products of an element of C, and the rule on the error of that."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.gemv.parameters import VECTOR, SplitK
from autotune.families.rules import Rule
from autotune.families.shared.accuracy import ACCURACY, possible_limit
from autotune.families.summation import Summation, in_order, split_length
from autotune.problem import Problem

RADIX = 8
"""Sums of threads that one thread adds up at a time (gemv.cu)."""


@dataclass(frozen=True)
class GemvSums(SplitK):
    """The parameters that decide in which order products are added up."""

    ways: int


def summation(p: GemvSums, problem: Problem) -> Summation:
    """Each thread sums up its share of the block's K; threads and blocks are added up then."""
    levels, ways = [], p.ways
    while ways > 1:
        levels.append(min(ways, RADIX))
        ways //= RADIX
    length = split_length(problem.k, p.split_k, VECTOR) / p.ways
    return Summation(in_order(length, *levels, p.split_k))


def _error_fault(sums: GemvSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""
