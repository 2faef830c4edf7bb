"""What a time may depend on besides the parameters, for a search to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import cost
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Description:
    """Some configurations, one a row.

    Attributes:
        features: a column for each quantity; a search scales them, so that units make no
            difference.
        predicted: what a model takes their times to be, in microseconds, infinite for what cannot
            run; None without a model.
    """

    features: Floats
    predicted: Floats | None = None


Describe = Callable[[Sequence[Config], Sequence[Resources | None]], Description]
"""Describes configurations by the resources of those that were compiled, and by estimates of the
others', which have None."""


def of_products(
    configs: Sequence[Config],
    problem: Problem,
    device: Device,
    resources: Sequence[Resources | None],
) -> Description:
    """Configurations of our families: what a block takes and does, and the cost model's times."""
    kinds = {name: registry.find(name) for name in {config.family for config in configs}}
    taken = [
        given or kinds[config.family].estimate(config)
        for config, given in zip(configs, resources, strict=True)
    ]
    load = cost.Load.of(configs, problem, device, taken)
    work = load.work
    tiles = np.log2(work.rows * work.columns), np.log2(work.rows / work.columns)
    blocks = _residency(taken, load.resident, work.blocks, device)
    return Description(
        np.column_stack([*tiles, np.log2(work.turns + 1), *blocks]),
        load.times(problem, device, cost.fitted()),
    )


def of_plans(
    plans: Sequence[LaunchPlan], device: Device, resources: Sequence[Resources]
) -> Description:
    """Configurations of any kernel, by their plans and by what is known of their resources."""
    resident = np.array([one.occupancy(device).blocks_per_sm for one in resources], float)
    grids = np.array([plan.main.grid for plan in plans], float)
    return Description(np.column_stack(_residency(resources, resident, grids.prod(1), device)))


def _residency(
    resources: Sequence[Resources], resident: Floats, blocks: Floats, device: Device
) -> list[Floats]:
    """Of a block its threads, shared memory and registers; blocks an SM; blocks, and the share of
    their last wave that is filled."""
    taken = np.array([(one.threads, one.shared + 1024, one.registers) for one in resources], float)
    at_once = np.maximum(resident, 1)
    waves = blocks / (at_once * device.sms)
    logs = np.log2(np.column_stack([taken[:, :2], at_once, blocks]))
    return [*logs.T, taken[:, 2], waves / np.ceil(waves)]
