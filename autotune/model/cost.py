"""The cost model: predicts the times of configurations from the device alone.

    blocks' work and residency -> terms: compute, L2, device memory, copies, sums, launches
        -> their total -> the time, corrected on architectures with many recordings

The model ranks candidates; a measurement always overrules it. Blocks fill the SMs in waves; those
of clusters fill the SMs that resident clusters occupy (`Device.cluster_sms`) and no others. In a
k-iteration, from one barrier of a block to the next, an SM issues the instructions of all its
blocks, keeps its tensor cores busy, serves their accesses to shared memory, and waits for data from
L2; the slowest of these decides. The whole takes at least the time that L2 and device memory need
for the bytes. Launches, sums over splits of K and copies of operands come on top. No prediction is
below the roofline (`roofline.least_seconds`).

`Coefficients` holds what is not arithmetic: rates, latencies and a factor for each form of the
inner loop. `scripts/fit/cost.py` fits them to recordings; `data/cost.json` keeps them together with
the data they were fitted to.

The arithmetic leaves an error of some 20 % that depends on shape and configuration together: how
copies, products and stores overlap, how tails and edges cost. For each kernel family a few networks
of two hidden layers predict the logarithm of measured over modelled time from the terms of the
model, the work, the problem and the parameters. `TRUST` of their mean is corrected.

    columns -> (columns - mean) / scale, within 4 of 0 -> ReLU layers -> log of the factor

`scripts/fit/correction.py` trains them with scikit-learn and checks them on shapes left out;
`data/correction.npz` has the weights and, as JSON, the names of the columns and what they were
trained on. They serve the architecture of these recordings alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, reduce
from importlib import resources as files
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune import roofline
from autotune.device import Device, fp32_lanes
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.family import Between, Work
from autotune.families.plan import Resources
from autotune.model.features import Description, Floats, Parameters, block_columns, problem_columns
from autotune.problem import Problem

FAR = 4.0
"""Standard deviations from the mean at which a column is cut off: beyond, networks guess."""

TRUST, LARGEST = 0.7, 1.0
"""The share of a predicted error that is corrected, and the largest correction, as a logarithm. On
shapes left out 0.7 chooses as well as 1; where no recording is near it errs less."""

DECIMALS = 6
"""Digits of a correction: matrix products differ by less from machine to machine."""


@dataclass(frozen=True)
class Network:
    """The networks of one family.

    Attributes:
        numbers: the parameters that are numbers.
        words: values of parameters that are words, with the parameters' names.
        mean, scale: of the columns; an infinite scale leaves a column out.
        weights, biases: of the layers, each with an axis of networks in front.
    """

    numbers: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def columns(self, shared: Floats, params: Parameters) -> Floats:
        """The columns of configurations of the family, a row each: those that all families have,
        logarithms of numbers, and 1 for each word that a configuration has."""
        return np.hstack([shared, params.logs(self.numbers), params.has(self.words)])

    def logs(self, columns: Floats) -> Floats:
        """The mean of all networks for each row of columns."""
        values = self.scaled(columns)[None]
        for layer, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = (np.maximum(values, 0.0) if layer else values) @ weights + biases[:, None]
        return np.asarray(values[..., 0].mean(0))

    def scaled(self, columns: Floats) -> Floats:
        """The columns in standard deviations from their means, cut off at `FAR`."""
        return np.clip((columns - self.mean) / self.scale, -FAR, FAR)


@cache
def trained() -> tuple[tuple[int, int], Mapping[str, Network]]:
    """The compute capability that the package's networks serve, and those of each family."""
    with (files.files("autotune") / "data" / "correction.npz").open("rb") as file:
        return loads(np.load(file, allow_pickle=False))


def loads(arrays: Mapping[str, NDArray[Any]]) -> tuple[tuple[int, int], Mapping[str, Network]]:
    """The networks in the arrays of a file, as `scripts/fit/correction.py` names them."""
    about = json.loads(str(arrays["about"]))

    def layers(family: str, kind: str) -> tuple[Floats, ...]:
        names = sorted(name for name in arrays if name.startswith(f"{family}/{kind}"))
        return tuple(arrays[name].astype(float) for name in names)

    networks = {
        family: Network(
            tuple(names["numbers"]),
            tuple((name, word) for name, word in names["words"]),
            arrays[f"{family}/mean"].astype(float),
            arrays[f"{family}/scale"].astype(float),
            layers(family, "weights"),
            layers(family, "biases"),
        )
        for family, names in about["families"].items()
    }
    major, minor = about["compute_capability"]
    return (major, minor), networks


def serving(device: Device) -> Mapping[str, Network]:
    """The networks of each family that correct times on a device; none on most architectures."""
    capability, networks = trained()
    return networks if device.compute_capability == capability else {}


def bounded(logs: Floats) -> Floats:
    """The logarithms of corrections for predicted errors."""
    return np.asarray(np.round(np.clip(TRUST * logs, -LARGEST, LARGEST), DECIMALS))


SCHEDULERS = 4

MICRO = 1e6

LEAST_US = 1e-3
"""Microseconds that a term counts at least in its share's logarithm."""

WORK = (
    *("blocks", "rows", "columns", "warps", "iterations", "issue", "shared", "bytes", "starts"),
    *("copies", "ahead", "end", "group", "gathers", "tensor", "cluster"),
)
"""The attributes of `Work` that the correction learns from."""


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


@cache
def fitted() -> Coefficients:
    """The coefficients that come with the package."""
    data = files.files("autotune") / "data" / "cost.json"
    return Coefficients(**json.loads(data.read_text(encoding="utf-8"))["coefficients"])


class Terms(NamedTuple):
    """Modelled times in microseconds, a column for each configuration.

    Attributes:
        parts: rows of the busiest SM, of what L2 and device memory need for the bytes, and of
            copies by further launches.
        total: the whole times, which may lie below the roofline; infinite if no block fits an SM or
            the device lacks the tensor cores.
    """

    parts: Floats
    total: Floats


@dataclass(frozen=True)
class Load:
    """The work of configurations of a problem on a device, and where the blocks of each are
    resident, as arrays.

    Attributes:
        configs: the configurations.
        problem: the problem.
        device: the device.
        needs: the resources of a block.
        work: the attributes of `Work`, each an array.
        resident: resident blocks an SM; 0 if none fits.
        sms: SMs that run blocks.
    """

    configs: Sequence[Config]
    problem: Problem
    device: Device
    needs: Sequence[Resources]
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
        """The load of each configuration; estimates replace missing resources."""
        works, needs = [], []
        for config, compiled in zip(configs, resources or [None] * len(configs), strict=True):
            family = registry.find(config.family)
            params = family.decode(config)
            works.append(family.block_work(params, problem))
            needs.append(compiled or family.resources(params, problem, device))
        room = _room_on(device)
        rooms = [room(need, work.cluster) for need, work in zip(needs, works, strict=True)]
        columns = {
            name: np.array([work[place] for work in works], float)
            for place, name in enumerate(Work._fields)
            if name != "traits"
        }
        named = SimpleNamespace(**columns, traits=[work.traits for work in works])
        resident, sms = np.array(rooms, float).reshape(-1, 2).T
        return cls(configs, problem, device, needs, named, resident, sms)

    def terms(self, fit: Coefficients) -> Terms:
        """Each configuration's time by the arithmetic alone."""
        work, device = self.work, self.device
        rate, bandwidth = device.tensor_rate(self.problem.compute), device.memory_bandwidth
        fits = (self.resident > 0) & ((work.tensor == 0) | (rate is not None))
        resident, sms = np.where(fits, (self.resident, self.sms), 1.0)
        busy = work.tensor / (rate or 1.0)
        l2_bytes = work.blocks * work.iterations * work.bytes
        seconds = (
            self._cycles(resident, sms, busy, fit) / device.sm_clock,
            l2_bytes / (fit.l2 * bandwidth),
            self._dram_bytes(sms * resident, fit) / (fit.dram * bandwidth),
            work.moved / (fit.moved * bandwidth),
            work.gathers * fit.gathers / device.sm_clock,
        )
        *main, moved, gathering = parts = MICRO * np.array(seconds)
        fixed = fit.launch + fit.passes * work.passes + fit.gather * (work.gathers > 0)
        total = _norm(*main) + moved + gathering + fixed
        return Terms(parts[:4], np.where(fits, total, np.inf))

    def _cycles(self, resident: Floats, sms: Floats, busy: Floats, fit: Coefficients) -> Floats:
        """Cycles of the busiest SM: full waves of blocks on all `sms` and a rest. An iteration of a
        block keeps the tensor cores `busy` for that many cycles at their full rate."""
        work = self.work
        full, rest = np.divmod(work.blocks, sms * resident)
        left = np.maximum(np.ceil(rest / sms), 1.0)
        whole, last = self._iteration(np.array([resident, left]), busy, fit)
        waves = full * whole + (rest > 0) * last
        # The copies of the first iterations are all issued before the wait for any of them.
        fill = work.ahead * work.copies * fit.copy * resident / SCHEDULERS
        begun = full + (rest > 0) - 1 + (work.starts - 1)
        ends = work.end * fit.end * (full + (rest > 0))
        first = fit.start + fit.arrival + fill
        again = begun * (fit.next / resident + fill)
        return np.asarray(first + again + work.iterations * waves + ends)

    def _iteration(self, blocks: Floats, busy: Floats, fit: Coefficients) -> Floats:
        """Cycles of an iteration of all `blocks` resident blocks."""
        work, device = self.work, self.device
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
        """The product of the factors of each configuration's traits."""

        def factor(trait: str | Between) -> float:
            if isinstance(trait, Between):
                return sum(trait.terms(traits).values())
            return traits.get(trait, 1.0)

        factors = {those: math.prod(map(factor, those)) for those in {*self.work.traits}}
        return np.array([factors[those] for those in self.work.traits], float)

    def _dram_bytes(self, resident: Floats, fit: Coefficients) -> Floats:
        """Bytes read from device memory if `resident` blocks run at once: every wave of tiles reads
        again what L2 does not keep."""
        work, problem = self.work, self.problem
        height, width = np.ceil(problem.m / work.rows), np.ceil(problem.n / work.columns)
        tiles = height * width
        at_once = np.minimum(resident, tiles)
        down = np.minimum(work.group, height)
        across = np.minimum(width, np.ceil(at_once / down))
        down = np.maximum(down, np.minimum(height, np.ceil(at_once / width)))
        waves = tiles / at_once
        a_wave = down * work.rows + across * work.columns
        again = problem.element_bytes * problem.batch * problem.k * a_wave * waves
        room = fit.cached * self.device.l2_bytes
        inputs = problem.bytes
        missed = min(1.0, max(0.0, inputs / room - 1.0)) if room else 1.0
        return np.asarray(missed * (inputs + np.maximum(0.0, again - inputs) * missed))

    def corrected(self) -> Floats:
        """The fitted model's total times with their learnt correction."""
        terms, networks = self.terms(fitted()), serving(self.device)
        if not networks:
            return terms.total
        logs, shared = np.zeros(len(self.configs)), self.correction_columns(terms)
        for family, (rows, params) in self.families.items():
            if network := networks.get(family):
                logs[rows] = network.logs(network.columns(shared[rows], params))
        factors = np.exp(np.where(np.isfinite(terms.total), bounded(logs), 0.0))
        return np.asarray(terms.total * factors)

    def correction_columns(self, terms: Terms) -> Floats:
        """The inputs of the correction other than parameters: the total time, the shares of its
        parts, the work, the residency of blocks, and the problem."""
        total = np.where(np.isfinite(terms.total), terms.total, 1.0)
        shares = np.log(np.maximum(terms.parts, LEAST_US) / total)
        resident = np.maximum(self.resident, 1.0)
        waves = self.work.blocks / (self.sms * resident)
        sizes = [*(getattr(self.work, name) for name in WORK), resident, self.sms, waves]
        fill = waves / np.ceil(waves)
        own = np.column_stack([np.log(total), *shares, *np.log2(1.0 + np.array(sizes)), fill])
        return np.hstack([own, np.tile(problem_columns(self.problem), (len(own), 1))])

    @cached_property
    def families(self) -> dict[str, tuple[NDArray[np.intp], Parameters]]:
        """The rows of each family's configurations, and their parameters."""
        rows: dict[str, list[int]] = {}
        for row, config in enumerate(self.configs):
            rows.setdefault(config.family, []).append(row)
        return {
            family: (np.array(members), Parameters.of([self.configs[row] for row in members]))
            for family, members in rows.items()
        }

    @cached_property
    def features(self) -> Floats:
        """Columns of the tile, the k-iterations and a block's resources and waves."""
        work = self.work
        tiles = np.log2(work.rows * work.columns), np.log2(work.rows / work.columns)
        blocks = block_columns(self.needs, self.resident, work.blocks, self.sms)
        return np.column_stack([*tiles, np.log2(work.iterations + 1), *blocks])


def times(
    configs: Sequence[Config],
    problem: Problem,
    device: Device,
    resources: Sequence[Resources | None] = (),
    coefficients: Coefficients | None = None,
) -> Floats:
    """Predicted microseconds of each configuration; infinite if no block fits an SM, or if the
    device lacks the tensor cores that it needs.

    Args:
        configs: legal configurations of `problem` on `device`.
        problem: the GEMM.
        device: the device it runs on.
        resources: resources of the compiled kernels; the family's estimate replaces a None.
        coefficients: coefficients of the uncorrected model; None takes the fitted ones, and
            corrects.
    """
    load = Load.of(configs, problem, device, resources)
    modelled = load.terms(coefficients).total if coefficients else load.corrected()
    return np.maximum(modelled, MICRO * roofline.least_seconds(problem, device))


def predict(
    config: Config, problem: Problem, device: Device, resources: Resources | None = None
) -> float:
    """Predicted microseconds of one configuration, as `times` gives them."""
    return float(times([config], problem, device, [resources])[0])


def rank(configs: Iterable[Config], problem: Problem, device: Device) -> list[tuple[float, Config]]:
    """The configurations with their predicted microseconds, fastest first.

    Those that the model would put below the roofline keep the order in which it does. Equal
    predictions are in the order of their parameters, so that every machine ranks alike.
    """
    configs = list(configs)
    modelled = Load.of(configs, problem, device).corrected()
    ranked = sorted(zip(modelled.tolist(), configs, strict=True))
    least = MICRO * roofline.least_seconds(problem, device)
    return [(max(time_us, least), config) for time_us, config in ranked]


def describe(
    configs: Sequence[Config],
    problem: Problem,
    device: Device,
    resources: Sequence[Resources | None] = (),
) -> Description:
    """Describes GEMM configurations by a block's resources and work and the predicted times."""
    load = Load.of(configs, problem, device, resources)
    return Description(load.features, load.corrected())


@lru_cache(maxsize=16)
def _room_on(device: Device) -> Callable[[Resources, int], tuple[int, int]]:
    """Resident blocks an SM and the SMs that run blocks, by a block's resources and the blocks of
    its cluster."""

    @cache
    def room(need: Resources, cluster: int) -> tuple[int, int]:
        occupancy = need.occupancy(device, cluster)
        return occupancy.blocks_per_sm, max(1, device.sms - occupancy.idle_sms)

    return room


def _norm(*terms: Floats) -> Floats:
    """The 4-norm of the terms: between the largest of them and their sum.

    Multiplications and square roots round alike on every machine, powers do not.
    """
    largest = reduce(np.maximum, terms)
    shares = sum(np.square(np.square(term / largest)) for term in terms)
    return np.asarray(largest * np.sqrt(np.sqrt(shares)))
