"""Features of configurations beside their parameters, for the search to learn from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import cost
from autotune.candidates.load import Load
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Description:
    """Features and predicted times of configurations, a row each.

    Attributes:
        features: a column for each quantity; the search scales them, so that units do not matter.
        predicted: a model's times in microseconds, infinite for what cannot run; None without a
            model.
    """

    features: Floats
    predicted: Floats | None = None


Describe = Callable[[Sequence[Config], Sequence[Resources | None]], Description]
"""Describes configurations by their compiled resources; estimates replace a None."""


def of_products(
    configs: Sequence[Config],
    problem: Problem,
    device: Device,
    resources: Sequence[Resources | None],
) -> Description:
    """Describes GEMM configurations by a block's resources and work and the cost model's times."""
    kinds = {name: registry.find(name) for name in {config.family for config in configs}}
    needs = [
        compiled or kinds[config.family].estimate(config, problem, device)
        for config, compiled in zip(configs, resources, strict=True)
    ]
    load = Load.of(configs, problem, device, needs)
    work = load.work
    tiles = np.log2(work.rows * work.columns), np.log2(work.rows / work.columns)
    blocks = _residency(needs, load.resident, work.blocks, load.sms)
    return Description(
        np.column_stack([*tiles, np.log2(work.iterations + 1), *blocks]),
        cost.corrected(load, configs, problem, device),
    )


def of_plans(
    plans: Sequence[LaunchPlan], device: Device, resources: Sequence[Resources]
) -> Description:
    """Describes configurations of any kernel by their plans and resources."""
    resident = np.array([need.occupancy(device).blocks_per_sm for need in resources], float)
    grids = np.array([plan.main.grid for plan in plans], float)
    return Description(np.column_stack(_residency(resources, resident, grids.prod(1), device.sms)))


def _residency(
    resources: Sequence[Resources], resident: Floats, blocks: Floats, sms: Floats | int
) -> list[Floats]:
    """Columns: a block's threads and shared memory, resident blocks, blocks, registers a thread,
    and the fill of the waves on `sms` SMs."""
    needs = np.array(
        [(need.threads, need.shared + 1024, need.registers) for need in resources], float
    )
    at_once = np.maximum(resident, 1)
    waves = blocks / (at_once * sms)
    logs = np.log2(np.column_stack([needs[:, :2], at_once, blocks]))
    return [*logs.T, needs[:, 2], waves / np.ceil(waves)]
