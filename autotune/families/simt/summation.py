"""How `simt` adds up the products of an element of C, and the rule on the error of that."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared import stream_k
from autotune.families.shared.accuracy import ACCURACY, possible_limit
from autotune.families.shared.cuda_enums import Reduction
from autotune.families.simt.parameters import SimtKSharing, reduction_rows
from autotune.families.summation import (
    Summation,
    SummationOrder,
    from_zero,
    in_order,
    sliced,
    split_by_longest,
    split_length,
)
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


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


@dataclass(frozen=True)
class SimtOrder:
    """The parameters that decide the order of summation."""

    slices: int
    bk: int
    split_k: int
    reduction: Reduction
    chunks: int


def summation_order(p: SimtOrder, problem: Problem) -> SummationOrder | None:
    """Each slice is a chain for each chunk; chunks are added up, then slices, then splits. Splits
    of stream-K begin where the number of tiles has it."""
    if p.reduction == "stream":
        return None
    steps = split_by_longest(ceil_div(problem.k, p.bk), p.split_k)
    tree = [sliced(_chunks(count, p), p.slices, p.bk // p.slices) for count in steps]
    if p.split_k == 1:
        return SummationOrder("ffma", tree[0])
    rows = reduction_rows(p.split_k) if p.reduction == "separate" else 1
    return SummationOrder("ffma", sliced(from_zero(tree), rows, 1))


def _chunks(count: int, p: SimtOrder) -> str:
    """The chunks of `count` k-iterations."""
    parts = [str(part * p.bk) for part in split_by_longest(count, p.chunks)]
    return "+".join(parts)


def _error_fault(sums: SimtSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""
