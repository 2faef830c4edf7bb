"""The work of many configurations on a device, and the arithmetic that turns it into time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.device import Device, fp32_lanes
from autotune.families import registry
from autotune.families.base import Between, Work
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.occupancy import Occupancy
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.candidates.cost import Coefficients

SCHEDULERS = 4
MICRO = 1e6

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Terms:
    """The parts of predicted times, in microseconds, an element for each configuration.

    Attributes:
        fits: whether a block fits an SM and the device has the tensor cores.
        compute: of the busiest SM.
        l2, dram: that L2 and device memory need for the bytes.
        moved: of copies by further launches.
        gathering: of sums over splits of K.
        fixed: of launches.
    """

    fits: NDArray[np.bool_]
    compute: Floats
    l2: Floats
    dram: Floats
    moved: Floats
    gathering: Floats
    fixed: Floats

    @cached_property
    def total(self) -> Floats:
        """The whole times; infinite where nothing runs."""
        main = _norm(self.compute, self.l2, self.dram)
        return np.where(self.fits, main + self.moved + self.gathering + self.fixed, np.inf)


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
            need = compiled or kinds[config.family].estimate(config, problem, device), work.cluster
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
        return self.terms(problem, device, fit).total

    def terms(self, problem: Problem, device: Device, fit: Coefficients) -> Terms:
        """The parts of each configuration's predicted time."""
        work, rate = self.work, device.tensor_rate(problem.compute)
        fits = (self.resident > 0) & ((work.tensor == 0) | (rate is not None))
        resident, sms = np.where(fits, (self.resident, self.sms), 1.0)
        busy = work.tensor / (rate or 1.0)
        compute = self._cycles(resident, sms, busy, device, fit) / device.sm_clock
        l2 = work.blocks * work.iterations * work.bytes / (fit.l2 * device.memory_bandwidth)
        dram = _dram_bytes(work, sms * resident, problem, device, fit) / (
            fit.dram * device.memory_bandwidth
        )
        moved = work.moved / (fit.moved * device.memory_bandwidth)
        gathering = work.gathers * fit.gathers / device.sm_clock
        fixed = fit.launch + fit.passes * work.passes + fit.gather * (work.gathers > 0)
        seconds = np.array(np.broadcast_arrays(compute, l2, dram, moved, gathering))
        compute, l2, dram, moved, gathering = MICRO * seconds
        return Terms(fits, compute, l2, dram, moved, gathering, np.asarray(fixed))

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
