"""The cost model: predicts a candidate's time from the device alone.

The model ranks candidates; a measurement always overrules it. Blocks fill the SMs in waves; those
of clusters fill the SMs that resident clusters occupy (`Device.cluster_sms`) and no others. In a
k-iteration, from one barrier of a block to the next, an SM issues the instructions of all its
blocks, keeps its tensor cores busy, serves their accesses to shared memory, and waits for data from
L2; the slowest of these decides. The whole takes at least the time that L2 and device memory need
for the bytes. Launches, sums over splits of K and copies of operands come on top. No prediction is
below the roofline (`roofline.least_seconds`).

`Coefficients` holds what is not arithmetic: rates, latencies and a factor for each form of the
inner loop. `scripts/fit_cost.py` fits them to recordings; `data/cost.json` keeps them together with
the data they were fitted to. `load` has the arithmetic; on an architecture with many recordings
`correction` multiplies its times by factors learnt from them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources as files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import correction
from autotune.candidates.load import MICRO, Load
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.occupancy import roofline
from autotune.problem import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficients:
    """The coefficients of the model, fitted to measurements; all are positive.

    Attributes:
        slot: cycles of a scheduler for an instruction, when there are enough warps.
        chain: cycles until a warp issues its next instruction, when it is alone.
        copy: instructions issued for a copy, with its address and predicate.
        tensor: cycles of the tensor cores for each cycle at their full rate.
        shared: cycles of the path to shared memory for each cycle that `Work.shared` counts.
        wait: latency of shared memory, in cycles.
        turn: cycles from the last warp's arrival at a barrier to the first product after it.
        arrival: latency of L2 or device memory, in cycles.
        start: cycles from a block's launch to its first product, besides `arrival`.
        next: cycles between the end of a tile and the start of the next.
        end: cycles for each cycle that `Work.end` counts.
        l2: bandwidth of L2, as a multiple of device memory's.
        dram: share of the device memory's peak bandwidth that is reached.
        cached: share of L2 that keeps data until the next run.
        launch: microseconds of a launch.
        passes: microseconds of each further launch.
        moved: bandwidth of copies by further launches, as a multiple of device memory's.
        gather: microseconds until a block knows that it is the last of its tile.
        gathers: latency of the partial sums that it then reads, in cycles.
        traits: factor of `slot` and `tensor` for each of `Work.traits`; 1 for a missing trait.
    """

    slot: float = 1.15
    chain: float = 2.0
    copy: float = 2.0
    tensor: float = 1.0
    shared: float = 1.0
    wait: float = 25.0
    turn: float = 60.0
    arrival: float = 800.0
    start: float = 900.0
    next: float = 600.0
    end: float = 1.0
    l2: float = 2.0
    dram: float = 0.9
    cached: float = 0.6
    launch: float = 1.5
    passes: float = 1.2
    moved: float = 1.0
    gather: float = 1.0
    gathers: float = 600.0
    traits: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def from_json(cls, mapping: Mapping[str, Any]) -> Coefficients:
        """Reads the object under `coefficients` of `data/cost.json`."""
        return cls(**mapping)


@cache
def fitted() -> Coefficients:
    """The coefficients that come with the package."""
    data = files.files("autotune") / "data" / "cost.json"
    return Coefficients.from_json(json.loads(data.read_text(encoding="utf-8"))["coefficients"])


def predict(
    config: Config, problem: Problem, device: Device, resources: Resources | None = None
) -> float:
    """Predicted time of a run in microseconds; infinite if no block fits an SM, or if the device
    lacks the tensor cores that it needs.

    Args:
        config: a legal configuration of `problem` on `device`.
        problem: the GEMM.
        device: the device it runs on.
        resources: resources of the compiled kernel; None takes the family's estimate.
    """
    return float(times([config], problem, device, [resources])[0])


def rank(configs: Iterable[Config], problem: Problem, device: Device) -> list[tuple[float, Config]]:
    """The configurations with their predicted microseconds, fastest first.

    Those that the model would put below the roofline keep the order in which it does. Equal
    predictions are in the order of their parameters, so that every machine ranks alike.
    """
    configs = list(configs)
    if not configs:
        return []
    load = Load.of(configs, problem, device)
    modelled = corrected(load, configs, problem, device)
    ranked = sorted(zip(modelled.tolist(), configs, strict=True))
    least = _least(problem, device)
    return [(max(time_us, least), config) for time_us, config in ranked]


def times(
    configs: Sequence[Config],
    problem: Problem,
    device: Device,
    resources: Sequence[Resources | None] = (),
    coefficients: Coefficients | None = None,
) -> Floats:
    """Predicted microseconds of each configuration, as `predict` gives them.

    Args:
        configs: legal configurations of `problem` on `device`.
        problem: the GEMM.
        device: the device it runs on.
        resources: resources of the compiled kernels; the family's estimate replaces a None.
        coefficients: those of the model without a correction; None takes the fitted ones, and
            corrects.
    """
    if not configs:
        return np.empty(0)
    load = Load.of(configs, problem, device, resources)
    if coefficients is None:
        modelled = corrected(load, configs, problem, device)
    else:
        modelled = load.times(problem, device, coefficients)
    return np.maximum(modelled, _least(problem, device))


def corrected(load: Load, configs: Sequence[Config], problem: Problem, device: Device) -> Floats:
    """Microseconds of a load by the fitted model with its learnt correction, which may lie below
    the roofline."""
    terms = load.terms(problem, device, fitted())
    factors = correction.factors(load, terms, configs, problem, device)
    return np.asarray(terms.total * factors)


def _least(problem: Problem, device: Device) -> float:
    """Microseconds that no kernel undercuts."""
    return MICRO * roofline.least_seconds(problem, device)
