"""How `simt` adds up the products of an element of C, and the rule on the error of that."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared import stream_k
from autotune.families.shared.accuracy import ACCURACY, possible_limit
from autotune.families.simt.parameters import SimtKSharing
from autotune.families.summation import Summation, in_order, split_length
from autotune.problem import Problem


@dataclass(frozen=True)
class SimtSums(SimtKSharing):
    """The parameters that decide in which order products are added up."""

    slices: int
    bk: int
    chunks: int


def summation(p: SimtSums, problem: Problem) -> Summation:
    """Each slice sums up its share of every chunk; chunks, slices and blocks are added up then."""
    if p.workers:
        tiles = p.tiles(problem)
        length = problem.k * stream_k.mean_part(tiles, p.workers)
        blocks = stream_k.splits_of_a_tile(tiles, p.workers)
    else:
        length, blocks = split_length(problem.k, p.split_k, p.bk), p.split_k
    return Summation(in_order(length / (p.slices * p.chunks), p.chunks, p.slices, blocks))


def _error_fault(sums: SimtSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""
