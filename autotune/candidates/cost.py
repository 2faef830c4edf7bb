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
the data they were fitted to.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources as files
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.device import Device, fp32_lanes
from autotune.families import registry
from autotune.families.base import Between, Work
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.occupancy import Occupancy, roofline
from autotune.problem import Problem

SCHEDULERS = 4
MICRO = 1e6

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
    ranked = sorted(zip(load.times(problem, device, fitted()).tolist(), configs, strict=True))
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
        coefficients: the coefficients of the model; None takes the fitted ones.
    """
    if not configs:
        return np.empty(0)
    load = Load.of(configs, problem, device, resources)
    modelled = load.times(problem, device, coefficients or fitted())
    return np.maximum(modelled, _least(problem, device))


def _least(problem: Problem, device: Device) -> float:
    """Microseconds that no kernel undercuts."""
    return MICRO * roofline.least_seconds(problem, device)


@dataclass(frozen=True)
class Load:
    """The work of many configurations and where the blocks of each are resident, as arrays.

    Attributes:
        work: the attributes of `Work`, each an array.
        resident: resident blocks an SM; 0 if none fits.
        sms: SMs that run blocks.
    """

    work: Any
    resident: Floats
    sms: Floats

    @classmethod
    def of(
        cls,
        configs: Sequence[Config],
        problem: Problem,
        device: Device,
        resources: Sequence[Resources | None] = (),
    ) -> Load:
        """The load of each configuration on the device."""
        kinds = {name: registry.find(name) for name in {config.family for config in configs}}
        works = [kinds[config.family].work(config, problem) for config in configs]
        occupancies: dict[tuple[Resources, int], Occupancy] = {}
        resident, sms = [], []
        for config, work, compiled in zip(
            configs, works, resources or [None] * len(configs), strict=True
        ):
            need = compiled or kinds[config.family].estimate(config, problem), work.cluster
            if need not in occupancies:
                occupancies[need] = need[0].occupancy(device, work.cluster)
            resident.append(occupancies[need].blocks_per_sm)
            sms.append(max(1, device.sms - occupancies[need].idle_sms))
        columns = zip(*works, strict=True)
        named = {
            name: column if name == "traits" else _floats(column)
            for name, column in zip(Work._fields, columns, strict=True)
        }
        return cls(SimpleNamespace(**named), _floats(resident), _floats(sms))

    def times(self, problem: Problem, device: Device, fit: Coefficients) -> Floats:
        """Modelled microseconds of each configuration, which may lie below the roofline; infinite
        where no block fits an SM or the device lacks the tensor cores."""
        work, rate = self.work, device.tensor_rate(problem.compute)
        fits = (self.resident > 0) & ((work.tensor == 0) | (rate is not None))
        resident, sms = np.where(fits, (self.resident, self.sms), 1.0)
        busy = work.tensor / (rate or 1.0)
        compute = self._cycles(resident, sms, busy, device, fit) / device.sm_clock
        l2 = work.blocks * work.iterations * work.bytes / (fit.l2 * device.memory_bandwidth)
        dram = _dram_bytes(work, sms * resident, problem, device, fit) / (
            fit.dram * device.memory_bandwidth
        )
        main = _norm(compute, l2, dram)
        moved = work.moved / (fit.moved * device.memory_bandwidth)
        gathering = work.gathers * fit.gathers / device.sm_clock
        fixed = fit.launch + fit.passes * work.passes + fit.gather * (work.gathers > 0)
        return np.where(fits, MICRO * (main + moved + gathering) + fixed, np.inf)

    def _cycles(
        self, resident: Floats, sms: Floats, busy: Floats, device: Device, fit: Coefficients
    ) -> Floats:
        """Cycles of the busiest SM: full waves of blocks on all `sms` and a rest. An iteration of a
        block keeps the tensor cores `busy` for that many cycles at their full rate."""
        work = self.work
        full, rest = np.divmod(work.blocks, sms * resident)
        left = np.maximum(np.ceil(rest / sms), 1.0)
        waves = full * self._iteration(resident, busy, device, fit)
        waves += (rest > 0) * self._iteration(left, busy, device, fit)
        # The copies of the first iterations are all issued before the wait for any of them.
        fill = work.ahead * work.copies * fit.copy * resident / SCHEDULERS
        begun = full + (rest > 0) - 1 + (work.starts - 1)
        ends = work.end * fit.end * (full + (rest > 0))
        first = fit.start + fit.arrival + fill
        again = begun * (fit.next / resident + fill)
        return np.asarray(first + again + work.iterations * waves + ends)

    def _iteration(self, blocks: Floats, busy: Floats, device: Device, fit: Coefficients) -> Floats:
        """Cycles of an iteration of all `blocks` resident blocks."""
        work = self.work
        slots = work.issue + fit.copy * work.copies
        factors = self._factors(fit.traits)
        # Where a scheduler has half a warp of fp32 units, a multiply-add takes two cycles anyway.
        units = fp32_lanes(device.compute_capability) / (SCHEDULERS * device.warp_size)
        least = np.where(busy > 0, 0.0, work.issue / units)
        issue = blocks / SCHEDULERS * np.maximum(slots * fit.slot * factors, least)
        tensor = blocks * busy * fit.tensor * factors
        alone = slots / work.warps * fit.chain + fit.wait * work.waits
        shared = blocks * work.shared * fit.shared
        behind = np.where(work.ahead > 0, 0.0, fit.arrival)
        arrival = fit.arrival / np.maximum(1.0, work.ahead)
        return _norm(issue, tensor, shared, alone + behind, arrival) + fit.turn / blocks

    def _factors(self, traits: Mapping[str, float]) -> Floats:
        factors: dict[tuple[str | Between, ...], float] = {}
        for combination in set(self.work.traits):
            factor = 1.0
            for trait in combination:
                if isinstance(trait, Between):
                    factor *= sum(trait.terms(traits).values())
                else:
                    factor *= traits.get(trait, 1.0)
            factors[combination] = factor
        return _floats([factors[combination] for combination in self.work.traits])


def _dram_bytes(
    work: Any, resident: Floats, problem: Problem, device: Device, fit: Coefficients
) -> Floats:
    """Bytes read from device memory if `resident` blocks run at once: every wave of tiles reads
    again what L2 does not keep."""
    height, width = np.ceil(problem.m / work.rows), np.ceil(problem.n / work.columns)
    tiles = height * width
    at_once = np.minimum(resident, tiles)
    down = np.minimum(work.group, height)
    across = np.minimum(width, np.ceil(at_once / down))
    down = np.maximum(down, np.minimum(height, np.ceil(at_once / width)))
    waves = tiles / at_once
    a_wave = down * work.rows + across * work.columns
    again = problem.element_bytes * problem.batch * problem.k * a_wave * waves
    room = fit.cached * device.l2_bytes
    inputs = problem.bytes
    missed = min(1.0, max(0.0, inputs / room - 1.0)) if room else 1.0
    return np.asarray(missed * (inputs + np.maximum(0.0, again - inputs) * missed))


def _norm(*terms: Floats) -> Floats:
    """The 4-norm of the terms: between the largest of them and their sum.

    Multiplications and square roots round alike on every machine, powers do not.
    """
    largest = np.maximum.reduce(terms)
    shares = sum(np.square(np.square(term / largest)) for term in terms)
    return np.asarray(largest * np.sqrt(np.sqrt(shares)))


def _floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, dtype=np.float64)
