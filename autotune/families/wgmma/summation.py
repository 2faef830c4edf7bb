"""How `wgmma` adds up the products of an element of C, and the rule on the error of that."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared import stream_k
from autotune.families.shared.accuracy import ACCURACY, possible_limit
from autotune.families.summation import Summation, in_order, split_length
from autotune.families.wgmma.tiles import WgmmaKSharing
from autotune.problem import SCALE_BLOCK, Problem


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


def _error_fault(sums: WgmmaSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""
