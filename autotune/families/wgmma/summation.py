"""How `wgmma` adds up the products of an element of C, and the rule on the error of that."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared import stream_k
from autotune.families.shared.accuracy import ACCURACY, possible_limit
from autotune.families.shared.cuda_enums import WgmmaReduction
from autotune.families.summation import (
    EXACT,
    Summation,
    SummationOrder,
    chain,
    from_zero,
    in_order,
    split_evenly,
    split_length,
)
from autotune.families.wgmma.operands import Low, Source
from autotune.families.wgmma.tiles import CLUSTERS, WgmmaKSharing
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div


@dataclass(frozen=True)
class WgmmaSums(WgmmaKSharing):
    """The parameters that decide in which order products are added up."""

    bk: int
    promote: int


def summation(p: WgmmaSums, problem: Problem) -> Summation:
    """Each consumer adds up promoted runs; blocks are added up then."""
    if p.reduction == "stream":
        size = p.shape.blocks
        tiles, workers = p.tiles(problem) // size, p.workers // size
        length = problem.k * stream_k.mean_part(tiles, workers)
        blocks = stream_k.splits_of_a_tile(tiles, workers)
    else:
        length, blocks = split_length(problem.k, p.split_k, p.bk), p.split_k
    promoted = SCALE_BLOCK if problem.precision.eight_bit else p.promote * p.bk
    run = min(length, promoted) if p.promote else length
    return Summation(in_order(length / run, blocks), run)


@dataclass(frozen=True)
class WgmmaOrder:
    """The parameters that decide the order of summation."""

    swap: int
    source: Source
    low: Low
    bk: int
    promote: int
    cluster: str
    split_k: int
    reduction: WgmmaReduction


def summation_order(p: WgmmaOrder, problem: Problem) -> SummationOrder | None:
    """Each split is a chain, promoted or not. The splits of a cluster are added up first, then
    those of different clusters. Splits of stream-K begin where the number of tiles has it."""
    if p.reduction == "stream":
        return None
    if problem.precision.operand.integer:
        return EXACT
    promoted = SCALE_BLOCK if problem.precision.eight_bit else p.promote * p.bk
    run = promoted if p.promote else 0
    steps = split_evenly(ceil_div(problem.k, p.bk), p.split_k)
    tree = [chain(count * p.bk, run) for count in steps]
    together = CLUSTERS[p.cluster].k
    if 1 < together < p.split_k:
        starts = range(0, p.split_k, together)
        tree = [from_zero(tree[start : start + together]) for start in starts]
    source = "registers" if p.source == "registers" else "shared"
    low = "" if p.low == "none" else f" low={p.low}"
    instruction = f"wgmma {problem.compute} swap={p.swap} {source}{low}"
    return SummationOrder(instruction, from_zero(tree) if p.split_k > 1 else tree[0])


def _error_fault(sums: WgmmaSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""
