"""What a candidate should take, predicted from the device alone.

The model is for ranking; a measurement always overrules it. It lets the blocks fall on the SMs in
waves. In a turn, from one barrier of a block to the next, an SM issues the instructions of all its
blocks, keeps its tensor cores busy, serves what they ask of shared memory, and waits for what has
been asked of L2; the slowest decides. The whole takes no less than L2 and device memory need for
the bytes. Launches, the sums over shares of K and copies of operands come on top.

What is not arithmetic is in `Coefficients`: rates, latencies and a factor for each way to write the
inner loop, fitted by `scripts/fit_cost.py` to recordings and kept in `data/cost.json` together with
what they were fitted to.
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
from autotune.families.base import Work
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem

SCHEDULERS = 4
MICRO = 1e6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Coefficients:
    """What the model takes from measurements; all are positive.

    Attributes:
        slot: cycles of a scheduler for an instruction, when there are warps enough.
        chain: cycles until a warp issues its next instruction, when it is alone.
        copy: instructions for one that copies, with its address and predicate.
        tensor: cycles of the tensor cores for one at their full rate.
        shared: cycles of the path to shared memory for one that `Work.shared` counts.
        wait: cycles until shared memory has answered a warp.
        turn: cycles from the last warp's arrival at a barrier to the first product after it.
        arrival: cycles until L2 or device memory has answered.
        start: cycles from a block's launch to its first product, besides `arrival`.
        next: cycles of which each further tile begins later than the one before it has ended.
        end: cycles for one that `Work.end` counts.
        l2: bytes a second of L2 for one of device memory.
        dram: share of the device memory's peak that is reached.
        cached: share of L2 that keeps data until the next run.
        launch: microseconds of a launch.
        passes: microseconds of each further launch.
        moved: bytes a second in which those copy, for one of device memory.
        gather: microseconds until the last block of a tile knows that it is.
        gathers: cycles until what it reads then has come.
        traits: factor of `slot` and `tensor` for each of `Work.traits`; 1 for what is not in it.
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
    """Predicted time of one run in microseconds; infinite if no block fits an SM, or if it needs
    tensor cores that the device has not.

    Args:
        config: a legal configuration of `problem` on `device`.
        problem: what is multiplied.
        device: where.
        resources: of the compiled kernel; by default the family's estimate.
    """
    return float(times([config], problem, device, [resources])[0])


def rank(configs: Iterable[Config], problem: Problem, device: Device) -> list[tuple[float, Config]]:
    """The configurations with their predicted microseconds, fastest first.

    Equal predictions are in the order of their parameters, so that the ranking is the same
    everywhere.
    """
    configs = list(configs)
    return sorted(zip(times(configs, problem, device).tolist(), configs, strict=True))


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
        problem: what is multiplied.
        device: where.
        resources: of the compiled kernels; the families' estimates where there are none.
        coefficients: of the model; by default those `fitted`.
    """
    if not configs:
        return np.empty(0)
    load = Load.of(configs, problem, device, resources)
    return load.times(problem, device, coefficients or fitted())


@dataclass(frozen=True)
class Load:
    """What many configurations do, and how many blocks of each an SM holds.

    Attributes:
        work: has what `Work` has, each as an array.
        resident: blocks an SM.
    """

    work: Any
    resident: Floats

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
        known: dict[Resources, int] = {}
        resident = []
        for config, given in zip(configs, resources or [None] * len(configs), strict=True):
            taken = given or kinds[config.family].estimate(config)
            if taken not in known:
                known[taken] = taken.occupancy(device).blocks_per_sm
            resident.append(known[taken])
        columns = zip(*works, strict=True)
        named = {
            name: column if name == "traits" else _floats(column)
            for name, column in zip(Work._fields, columns, strict=True)
        }
        return cls(SimpleNamespace(**named), _floats(resident))

    def times(self, problem: Problem, device: Device, given: Coefficients) -> Floats:
        """Microseconds of each; infinite where no block fits an SM or the device has no tensor
        cores for it."""
        work, rate = self.work, device.tensor_rate(problem.compute)
        fits = (self.resident > 0) & ((work.tensor == 0) | (rate is not None))
        resident = np.where(fits, self.resident, 1.0)
        busy = work.tensor / (rate or 1.0)
        compute = self._cycles(resident, busy, device, given) / device.sm_clock
        l2 = work.blocks * work.turns * work.bytes / (given.l2 * device.memory_bandwidth)
        dram = _dram_bytes(work, resident, problem, device, given) / (
            given.dram * device.memory_bandwidth
        )
        product = _norm(compute, l2, dram)
        moved = work.moved / (given.moved * device.memory_bandwidth)
        gathering = work.gathers * given.gathers / device.sm_clock
        fixed = given.launch + given.passes * work.passes + given.gather * (work.gathers > 0)
        return np.where(fits, MICRO * (product + moved + gathering) + fixed, np.inf)

    def _cycles(
        self, resident: Floats, busy: Floats, device: Device, given: Coefficients
    ) -> Floats:
        """Cycles of the SM that has most to do: waves that fill it, and what is left. A turn of a
        block keeps its tensor cores `busy` for so many at their full rate."""
        work = self.work
        full, rest = np.divmod(work.blocks, device.sms * resident)
        left = np.maximum(np.ceil(rest / device.sms), 1.0)
        waves = full * self._turn(resident, busy, device, given)
        waves += (rest > 0) * self._turn(left, busy, device, given)
        # The copies of the first turns are sent off before any of them is waited for.
        fill = work.ahead * work.copies * given.copy * resident / SCHEDULERS
        begun = full + (rest > 0) - 1 + (work.starts - 1)
        ends = work.end * given.end * (full + (rest > 0))
        first = given.start + given.arrival + fill
        again = begun * (given.next / resident + fill)
        return np.asarray(first + again + work.turns * waves + ends)

    def _turn(self, blocks: Floats, busy: Floats, device: Device, given: Coefficients) -> Floats:
        """Cycles of a turn of all `blocks` resident ones."""
        work = self.work
        slots = work.issue + given.copy * work.copies
        factors = self._factors(given.traits)
        # Where a scheduler has half a warp of fp32 units, a multiply-add takes two cycles anyway.
        units = fp32_lanes(device.compute_capability) / (SCHEDULERS * device.warp_size)
        least = np.where(busy > 0, 0.0, work.issue / units)
        issue = blocks / SCHEDULERS * np.maximum(slots * given.slot * factors, least)
        tensor = blocks * busy * given.tensor * factors
        alone = slots / work.warps * given.chain + given.wait * work.waits
        shared = blocks * work.shared * given.shared
        behind = np.where(work.ahead > 0, 0.0, given.arrival)
        arrival = given.arrival / np.maximum(1.0, work.ahead)
        return _norm(issue, tensor, shared, alone + behind, arrival) + given.turn / blocks

    def _factors(self, traits: Mapping[str, float]) -> Floats:
        known: dict[tuple[str, ...], float] = {}
        for one in set(self.work.traits):
            factor = 1.0
            for trait in one:
                factor *= traits.get(trait, 1.0)
            known[one] = factor
        return _floats([known[one] for one in self.work.traits])


def _dram_bytes(
    work: Any, resident: Floats, problem: Problem, device: Device, given: Coefficients
) -> Floats:
    """Bytes of device memory: what L2 does not keep is read again by every wave of tiles."""
    height, width = np.ceil(problem.m / work.rows), np.ceil(problem.n / work.columns)
    tiles = height * width
    at_once = np.minimum(device.sms * resident, tiles)
    down = np.minimum(work.group, height)
    across = np.minimum(width, np.ceil(at_once / down))
    down = np.maximum(down, np.minimum(height, np.ceil(at_once / width)))
    waves = tiles / at_once
    a_wave = down * work.rows + across * work.columns
    again = problem.element_bytes * problem.batch * problem.k * a_wave * waves
    room = given.cached * device.l2_bytes
    inputs = problem.bytes
    missed = min(1.0, max(0.0, inputs / room - 1.0)) if room else 1.0
    return np.asarray(missed * (inputs + np.maximum(0.0, again - inputs) * missed))


def _norm(*terms: Floats) -> Floats:
    """Between the largest of the terms and their sum: the root of their fourth powers' sum.

    Multiplications and square roots are the same on every machine, powers are not.
    """
    largest = np.maximum.reduce(terms)
    shares = sum(np.square(np.square(term / largest)) for term in terms)
    return np.asarray(largest * np.sqrt(np.sqrt(shares)))


def _floats(values: Sequence[float]) -> Floats:
    return np.asarray(values, dtype=np.float64)
