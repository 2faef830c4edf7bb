"""The orders of summation that may serve every M of a span, by the cost model."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import islice

from autotune.candidates import cost
from autotune.candidates.legality import order_of
from autotune.candidates.space import survey
from autotune.device import Device
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.problem.span import Span

PROBES = 4
"""Sizes at which orders are compared: both ends of a span, and the rest between."""
LEADERS = 3
"""Orders of a probe that are compared at the others."""
SLOWEST = 1.6
"""Factor of the best time at a probe from which an order is given up, if others are left."""


@dataclass(frozen=True)
class OrderOutlook:
    """The expected cost of an order of summation.

    Attributes:
        order: the order.
        factor: the geometric mean, over the probes, of its best time over the best of all orders.
        best: its best configurations at each probe, by M.
    """

    order: str
    factor: float
    best: dict[int, tuple[Config, ...]]


def probes(span: Span) -> tuple[int, ...]:
    """Sizes of a span to compare orders at, ascending and evenly spread in their logarithm."""
    ratio = span.high / span.low
    steps = range(PROBES)
    return tuple(sorted({round(span.low * ratio ** (step / (PROBES - 1))) for step in steps}))


def promising_orders(span: Span, device: Device, configs: int) -> list[OrderOutlook]:
    """The orders that serve every probe, the best predicted first, with so many configurations
    each."""
    sizes = probes(span)
    least: dict[int, float] = {}
    leaders: dict[str, None] = {}
    for size in sizes:
        problem = span.at(size)
        ranked = cost.rank(survey(problem, device), problem, device)
        orders = (order_of(config, problem) for _, config in ranked)
        least[size] = min((time for time, _ in ranked), default=math.inf)
        first = dict.fromkeys(str(order) for order in orders if order is not None)
        leaders |= dict.fromkeys(islice(first, LEADERS))
    for slowest in (SLOWEST, math.inf):
        limits = {size: slowest * time_us for size, time_us in least.items()}
        outlooks = [_outlook(order, span, device, least, limits, configs) for order in leaders]
        serving = [outlook for outlook in outlooks if outlook is not None]
        if serving:
            break
    return sorted(serving, key=lambda outlook: outlook.factor)


def _outlook(
    order: str,
    span: Span,
    device: Device,
    least: dict[int, float],
    limits: dict[int, float],
    configs: int,
) -> OrderOutlook | None:
    """The expected cost of an order; None if it cannot serve a probe within its limit."""
    best: dict[int, tuple[Config, ...]] = {}
    logs = []
    for size in least:
        problem = span.at(size)
        ranked = ordered_by_time(problem, device, order)
        if not ranked or not ranked[0][0] < limits[size]:
            return None
        best[size] = tuple(config for _, config in ranked[:configs])
        logs.append(math.log(ranked[0][0] / least[size]))
    return OrderOutlook(order, math.exp(sum(logs) / len(logs)), best)


def ordered_by_time(problem: Problem, device: Device, order: str) -> list[tuple[float, Config]]:
    """Predicted microseconds and configurations of an order, the fastest first."""
    return cost.rank(survey(problem, device, order=order), problem, device)
