"""Tune a range of M in one order of summation, so that a row's bits do not depend on its batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from statistics import geometric_mean
from typing import Any, ClassVar, cast
from zlib import crc32

import numpy as np

from autotune import files
from autotune.cuda import compiler
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.lookup.batch_invariant import order_recorded, ordered_by_time, outside_order
from autotune.lookup.promising import RACED, Contenders
from autotune.measure import targets
from autotune.measure.devices import option
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate, RowReference, Runner
from autotune.measure.targets import TargetOpener
from autotune.model import cost
from autotune.model.legality import Legality, order_of
from autotune.model.space import Space, feasible, sample
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import FamilyRecord, Record, Records, Store
from autotune.records.record import order_slug
from autotune.settings import cache_dir
from autotune.tuning import loop
from autotune.tuning.options import Search
from autotune.tuning.pipeline import Compile, prepare
from autotune.tuning.trials import Observer
from autotune.tuning.tunable import GemmTunable, QuickTunable, SearchResult

RACED_ORDERS, RACED_CONFIGS = 3, 3
"""Orders that are raced, and configurations of each, at each of the probes."""

PROBES = 4
"""Sizes at which orders are compared: both ends of a span, and the rest between."""

LEADERS = 3
"""Orders of a probe that are compared at the others."""

SLOWEST = 1.6
"""Factor of the best time at a probe from which an order is given up, if others are left."""

ROWS = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129, 200)
"""Rows that a reference computes: around the sides of tiles and of instructions."""

START = 16
"""Rows start at a multiple of this, so that their operands are as aligned as C's."""


def place_of(
    span: Span, resolved: Device, opener: TargetOpener, store: Store, options: Search
) -> RangePlace:
    """The place that tunes a range of M in one order of summation.

    The order is that of an earlier range of the same N, K, precision and layout. Without one, the
    orders that the cost model expects most of are raced at several M, and the best geometric mean
    wins.

    Raises:
        NotFoundError: if no order serves every M.
    """
    records = Records(store)
    order = order_recorded(span.problem, resolved, records)
    if order is None:
        order = choose_order(span, resolved, opener, options)
    references = _references(span, order, resolved, records, option(opener.device))
    return RangePlace(resolved, opener, store, order, references)


@dataclass(frozen=True)
class OrderedGemm(GemmTunable):
    """A problem, tuned over the kernels of one order of summation."""

    with_library: ClassVar[bool] = False  # the order of its sums is not known
    order: str = field(kw_only=True)

    @property
    def slug(self) -> str:
        """The problem's slug, with that of the order."""
        return f"{self.problem.slug}-{order_slug(self.order)}"

    def contenders(self, device: Device, store: Store, objective: Objective) -> Contenders | None:
        """None: the contenders of a search are of any order."""
        del device, store, objective
        return None

    def legal(self, runner: Runner, family: str) -> Space:
        """The legal configurations of the order, or those that the runner has recorded."""
        if runner.known() is None:
            return feasible(self.problem, runner.device, family, self.order)
        recorded = super().legal(runner, family)
        own = (row for row in recorded.configs if str(order_of(row, self.problem)) == self.order)
        return replace(recorded, configs=tuple(own))

    def record(self, result: SearchResult) -> FamilyRecord:
        """The record of the order."""
        return FamilyRecord(*result, self.problem, self.family, self.order)


@dataclass(frozen=True)
class OrderedRace(QuickTunable, OrderedGemm):
    """A race of a few configurations of one order of summation."""


@dataclass(frozen=True)
class OrderForecast:
    """The expected cost of an order of summation.

    Attributes:
        order: the order.
        factor: the geometric mean, over the probes, of its best time over the best of all orders.
        best: its best configurations at each probe, by M.
    """

    order: str
    factor: float
    best: dict[int, tuple[Config, ...]]


def choose_order(span: Span, resolved: Device, opener: TargetOpener, options: Search) -> str:
    """The order with the best geometric mean of times over the probes of a span: as raced where the
    device measures, else as predicted.

    Raises:
        NotFoundError: if no order serves all of them.
    """
    forecasts = promising_orders(span, resolved)[:RACED_ORDERS]
    if not forecasts:
        raise NotFoundError(
            f"no order of summation serves every M of {span.low}..{span.high} of {span.problem} "
            f"on {resolved.name}; give a smaller range"
        )
    if len(forecasts) == 1 or not targets.measures(opener.device):
        return forecasts[0].order
    return _raced(forecasts, span, resolved, opener, options)


def probes(span: Span) -> tuple[int, ...]:
    """Sizes of a span to compare orders at, ascending and evenly spread in their logarithm."""
    return tuple(sorted({round(size) for size in np.geomspace(span.low, span.high, PROBES)}))


def promising_orders(span: Span, device: Device) -> list[OrderForecast]:
    """The orders that serve every probe, the best predicted first."""
    sizes = probes(span)
    least: dict[int, float] = {}
    leaders: dict[str, None] = {}
    for size in sizes:
        problem = span.at(size)
        ranked = cost.rank(sample(problem, device), problem, device)
        own = (order_of(config, problem) for _, config in ranked)
        least[size] = min((time for time, _ in ranked), default=math.inf)
        first = dict.fromkeys(str(order) for order in own if order is not None)
        leaders |= dict.fromkeys(islice(first, LEADERS))
    for slowest in (SLOWEST, math.inf):
        forecasts = [_forecast(order, span, device, least, slowest) for order in leaders]
        serving = [forecast for forecast in forecasts if forecast is not None]
        if serving:
            break
    return sorted(serving, key=lambda forecast: forecast.factor)


def _forecast(
    order: str, span: Span, device: Device, least: dict[int, float], slowest: float
) -> OrderForecast | None:
    """The expected cost of an order; None if it cannot serve a probe within `slowest` times the
    least time of all orders."""
    best: dict[int, tuple[Config, ...]] = {}
    factors = []
    for size in least:
        problem = span.at(size)
        ranked = ordered_by_time(problem, device, order)
        if not ranked or not ranked[0][0] < slowest * least[size]:
            return None
        best[size] = tuple(config for _, config in ranked[:RACED_CONFIGS])
        factors.append(ranked[0][0] / least[size])
    return OrderForecast(order, geometric_mean(factors), best)


def _raced(
    forecasts: list[OrderForecast],
    span: Span,
    device: Device,
    opener: TargetOpener,
    options: Search,
) -> str:
    logs = {forecast.order: 0.0 for forecast in forecasts}
    with files.temporary_folder() as folder:  # these races are not recorded
        place = RangePlace(device, opener, Store(folder))
        for size in forecasts[0].best:
            problem = span.at(size)
            configs = tuple(config for forecast in forecasts for config in forecast.best[size])
            record = place.race_between(problem, configs, options.race(), None)
            times = dict.fromkeys(logs, math.inf)
            for entry in record.entries:
                order = str(order_of(entry.config, problem))
                times[order] = min(times[order], entry.measurement.time_us)
            logs = {order: total + math.log(times[order]) for order, total in logs.items()}
    return min(logs, key=logs.__getitem__)


def _references(
    span: Span, order: str, device: Device, records: Records, option: str
) -> tuple[Config, ...]:
    """Configurations for the smallest M. All other configurations are compared with one of them, on
    few rows."""
    problem = span.at(span.low)
    record = records.store.ordered(device, problem, order)
    if record is not None:
        return (record.best.config,)
    ranked = ordered_by_time(problem, device, order)
    if not ranked:
        raise NotFoundError(outside_order(problem, device, records, option))
    return tuple(config for _, config in ranked[:RACED])


@dataclass(frozen=True)
class RangePlace:
    """The device, store and options with which the problems of a range are tuned.

    Attributes:
        device: the device's properties.
        opener: opener of the targets that measure them.
        store: store of the records.
        order: the order of summation; None for any.
        references: configurations of the order whose rows all others have to compute.
    """

    device: Device
    opener: TargetOpener
    store: Store
    order: str | None = None
    references: tuple[Config, ...] = ()

    def search(self, problem: Problem, options: Search, observer: Observer | None) -> Record:
        """Searches the order; quick options race its most promising configurations."""
        assert self.order is not None
        if not options.quick:
            return self.run(OrderedGemm(problem, order=self.order), options, observer)
        ranked = ordered_by_time(problem, self.device, self.order)
        configs = tuple(config for _, config in ranked[:RACED])
        return self.race_between(problem, configs, options, observer)

    def race_between(
        self,
        problem: Problem,
        configs: tuple[Config, ...],
        options: Search,
        observer: Observer | None,
    ) -> Record:
        """Races these configurations."""
        raced = Contenders.between(problem, self.device, configs)
        if self.order is None:
            tunable = QuickTunable(problem, raced=raced, most_of_library=0)
            return self.run(tunable, options, observer)
        return self.run(OrderedRace(problem, order=self.order, raced=raced), options, observer)

    def run(self, tunable: GemmTunable, options: Search, observer: Observer | None) -> Record:
        """Tunes a problem; where the device measures, rows are compared with the reference's."""
        compile = partial(compiler.compile, cache=cache_dir())
        with self.opener.starting(tunable.problem) as opened:
            target = opened()
            runner = target.runner
            if self.order and runner.evidence == "measured":
                checks = RowChecks(runner, tunable.problem, self.order, self.references, compile)
                runner = checked(runner, checks.compared)
            files.ensure(self.store.root)
            return loop.tune(
                tunable,
                runner,
                self.store,
                options,
                compile=compile,
                origin=target.origin,
                observer=observer,
            )


def checked(runner: Runner, compared: Callable[[Candidate], Candidate]) -> Runner:
    """The runner; `compared` adds the rows to each candidate that it has to compute as a reference
    does."""
    return cast("Runner", _CheckedRunner(runner, compared))


class _CheckedRunner:
    def __init__(self, runner: Runner, compared: Callable[[Candidate], Candidate]) -> None:
        self._runner, self._compared = runner, compared

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        return self._runner.measure(self._compared(candidate), best, objective)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        return self._runner.rematch([*map(self._compared, candidates)])

    def examine(self, candidate: Candidate) -> Failure | None:
        return self._runner.examine(self._compared(candidate))

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        return self._runner.energies([*map(self._compared, candidates)])


@dataclass(frozen=True)
class RowChecks:
    """Row checks of a run, which compare every candidate with the reference.

    Each candidate gets other rows: 1 to 200 of them, at either end of C. What a launch of these
    rows alone computes does not depend on the rows beside them. So no two candidates of different
    M that pass can differ in the rows that they share.

    Attributes:
        runner: measures the candidates.
        problem: its problem.
        order: the order of summation.
        references: configurations of that order for some number of rows; the first one that
            compiles is the reference.
        compile: makes a program of a template for an architecture.
    """

    runner: Runner
    problem: Problem
    order: str
    references: Sequence[Config]
    compile: Compile
    _prepared: dict[int, Candidate] = field(default_factory=dict, init=False)

    def compared(self, candidate: Candidate) -> Candidate:
        """The candidate with the rows that it has to compute as the reference does.

        Raises:
            AutotuneError: if no reference compiles.
        """
        reference, counts = self._reference
        if not counts:
            return candidate
        number = crc32(str(candidate.config).encode())
        rows = counts[number % len(counts)]
        if rows not in self._prepared:
            prepared = self._launch(reference, rows)
            if isinstance(prepared, Failure):
                raise AutotuneError(f"{reference} computes no {rows} rows: {prepared.reason}")
            self._prepared[rows] = prepared
        last = (self.problem.m - rows) // START * START
        first = last if number // len(counts) % 2 else 0
        return replace(candidate, rows=RowReference(first, rows, self._prepared[rows]))

    @cached_property
    def _reference(self) -> tuple[Config, list[int]]:
        """The reference, and the numbers of rows that it can compute here."""
        for config in self.references:
            counts = self._counts(config)
            if not counts or isinstance(self._launch(config, counts[0]), Candidate):
                return config, counts
        raise AutotuneError(f"none of {len(self.references)} references of rows compiles")

    def _counts(self, config: Config) -> list[int]:
        m = self.problem.m
        # Scales of blocks lie by M, so that fewer rows would read others.
        wanted = (m,) if self.problem.scale == "block" else (*ROWS, m)
        return [
            rows
            for rows in dict.fromkeys(wanted)
            if rows <= min(m, ROWS[-1])
            and Legality(replace(self.problem, m=rows), self.runner.device, self.order)(config)
        ]

    def _launch(self, config: Config, rows: int) -> Candidate | Failure:
        few = replace(self.problem, m=rows)
        plan = registry.plan(config, few, Alignment.dense(self.problem))
        return prepare(plan, self.runner, self.compile)
