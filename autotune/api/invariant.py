"""Tune a range of M in one order of summation, so that a row's bits do not depend on its batch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial

from autotune import compiler, files, settings
from autotune.api.coverage import LOSS, cover
from autotune.candidates.legality import order_of
from autotune.candidates.order_choice import OrderOutlook, ordered_by_time, promising_orders
from autotune.device import Device
from autotune.errors import NotFoundError, UsageError
from autotune.families.config import Config
from autotune.families.registry import AUTO
from autotune.lookup.batch_invariant import order_recorded, outside_order
from autotune.lookup.promising import RACED, Contenders
from autotune.problem import Problem
from autotune.problem.span import Span
from autotune.records import Record, Records, Store
from autotune.records.ranges import Range
from autotune.settings import cache_dir
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike, option
from autotune.targets.workplace import Workplace
from autotune.tuning import loop
from autotune.tuning.events import Observer
from autotune.tuning.gemm import GemmTunable, QuickTunable
from autotune.tuning.options import Search
from autotune.tuning.row_checks import RowChecks

RACED_ORDERS, RACED_CONFIGS = 3, 3
"""Orders that are raced, and configurations of each, at each of the probes."""

Observed = Callable[[Problem], Observer | None]


def tune(
    span: Span,
    options: Search,
    *,
    device: DeviceLike = DEFAULT,
    family: str = AUTO,
    loss: float = LOSS,
    observed: Observed = lambda _: None,
) -> Range:
    """Tunes a range of M in one order of summation.

    The order is that of an earlier range of the same N, K, precision and layout. Without one, the
    orders that the cost model expects most of are raced at several M, and the best geometric mean
    wins.
    """
    if span.dimension != "m":
        raise UsageError(
            f"batch invariance of a range of {span.dimension}; give M as LOW..HIGH, such as "
            "1..8192x4096x4096"
        )
    if family != AUTO:
        raise UsageError("batch invariance takes no family; leave it out")
    settings.refuse_frozen(f"cannot tune {span.problem}")
    resolved = targets.resolve(device)
    targets.check_memory(span.problem, resolved)
    records = Records(Store(cache_dir()))
    with Workplace(device, seed=options.seed) as workplace:
        order = order_recorded(span.problem, resolved, records)
        if order is None:
            order = choose_order(span, resolved, workplace, options)
        references = _references(span, order, resolved, records, option(device))
        place = RangePlace(workplace, records.store, order, references)

        def search(problem: Problem, until: float | None) -> Record:
            timed, observer = replace(options, deadline=until), observed(problem)
            if options.quick:
                return place.race(problem, timed, observer)
            return place.run(GemmTunable(problem, order=order), timed, observer)

        def race(problem: Problem, until: float | None) -> Record:
            quick = replace(options, deadline=until).race()
            return place.race(problem, quick, observed(problem))

        store, limits = records.store, (loss, options.objective, family, race, order)
        return cover(span, resolved, store, search, *limits, deadline=options.deadline)


def choose_order(span: Span, resolved: Device, workplace: Workplace, options: Search) -> str:
    """The order with the best geometric mean of times over the probes of a span: as raced where the
    device measures, else as predicted.

    Raises:
        NotFoundError: if no order serves all of them.
    """
    outlooks = promising_orders(span, resolved, RACED_CONFIGS)[:RACED_ORDERS]
    if not outlooks:
        raise NotFoundError(
            f"no order of summation serves every M of {span.low}..{span.high} of {span.problem} "
            f"on {resolved.name}; give a smaller range"
        )
    if len(outlooks) == 1 or not targets.measures(workplace.device):
        return outlooks[0].order
    return _raced(outlooks, span, workplace, options)


def _raced(outlooks: list[OrderOutlook], span: Span, workplace: Workplace, options: Search) -> str:
    """The order whose best configurations are the fastest, by the geometric mean."""
    logs = {outlook.order: 0.0 for outlook in outlooks}
    with files.temporary_folder() as folder:  # these races are no records
        place = RangePlace(workplace, Store(folder))
        for size in outlooks[0].best:
            problem = span.at(size)
            configs = tuple(config for outlook in outlooks for config in outlook.best[size])
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
    """Configurations for the smallest M, one of which all others are compared with, on few rows.

    Raises:
        NotFoundError: if the smallest M has none of the order.
    """
    problem = span.at(span.low)
    record = records.ordered(device, problem, order)
    if record is not None:
        return (record.best.config,)
    ranked = ordered_by_time(problem, device, order)
    if not ranked:
        raise NotFoundError(outside_order(problem, device, records, option))
    return tuple(config for _, config in ranked[:RACED])


@dataclass(frozen=True)
class RangePlace:
    """Where problems of a range are tuned.

    Attributes:
        workplace: where they are measured.
        store: where the records go.
        order: the order of summation; None for any.
        references: configurations of the order whose rows all others have to compute.
    """

    workplace: Workplace
    store: Store
    order: str | None = None
    references: tuple[Config, ...] = ()

    @cached_property
    def device(self) -> Device:
        """The device's properties."""
        return targets.resolve(self.workplace.device)

    def race(self, problem: Problem, options: Search, observer: Observer | None) -> Record:
        """Races the configurations of the order that the cost model expects most of."""
        ranked = ordered_by_time(problem, self.device, self.order or "")
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
        return self.run(QuickTunable(problem, order=self.order, raced=raced), options, observer)

    def run(self, tunable: GemmTunable, options: Search, observer: Observer | None) -> Record:
        """Tunes a problem; where the device measures, rows are compared with the reference's."""
        compile = partial(compiler.compile, cache=cache_dir())
        with self.workplace.opening(tunable.problem) as opened:
            target = opened()
            runner, compared = target.runner, None
            if self.order and runner.evidence == "measured":
                checks = RowChecks(runner, tunable.problem, self.order, self.references, compile)
                compared = checks.compared
            files.ensure(self.store.root)
            return loop.tune(
                tunable,
                runner,
                self.store,
                options,
                compile=compile,
                origin=target.origin,
                observer=observer,
                compared=compared,
            )
