"""Tune a range of sizes, such as `1..512x4096x4096`, at as few of them as it takes.

The ends are tuned first. At the sizes between, the cost model, corrected by all records, predicts
how much longer the configurations of the tuned sizes take than the best configuration there. Where
that loss is too large, the size is tuned as well. Where races make that cheap, one size of each
octave is tuned in any case: the model may be wrong.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from itertools import pairwise
from time import monotonic

from autotune import settings
from autotune.api import tuning
from autotune.api.tuning import ProgressLike
from autotune.device import Device
from autotune.errors import BudgetError, UsageError
from autotune.families.config import Config
from autotune.families.registry import AUTO
from autotune.lookup.neighbours import learn_errors
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.objective import HOT, Objective
from autotune.measure.targets import TargetOpener
from autotune.model.legality import Legality, as_tuned
from autotune.model.model_error import ModelError
from autotune.model.space import sample
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Record, Records, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.records.record import BEST_FIRST
from autotune.settings import cache_dir
from autotune.tuning.options import Search, require_time

LOSS = 0.05
"""Default of the accepted loss against full tuning: 5 %."""

PICKED = 150
"""Configurations picked by the model at each end and in the middle of a span; the best of every
size is assumed to be among them."""

OCTAVE = 2
"""The largest ratio of a tuned size to the next one, where sizes are raced."""

CAUTION = 1.0
"""Standard deviations added to a predicted time: the fastest of many guesses is too fast."""

ENDS = 0.5
"""Share of a budget for the ends of a range; the rest is for the sizes between: comparing them, and
racing some."""

TuneUntil = Callable[[Problem, float | None], Record]
"""Tunes a problem until a time by `time.monotonic`; None sets none."""

Samples = Mapping[Problem, Sequence[Config]]


def tune(
    span: Span,
    options: Search,
    device: DeviceLike = DEFAULT,
    family: str = AUTO,
    *,
    loss: float = LOSS,
    progress: ProgressLike = False,
    batch_invariant: bool = False,
) -> Range:
    """Tunes as few sizes of a range as keep the expected loss small, and records which tuned size
    serves which others: `autotune.tune` of a range with its arguments decoded.

    Args:
        span: the range.
        options: the search of each end.
        device: as for `autotune.tune`.
        family: kernel family; another than `auto` searches the sizes between the ends too.
        loss: accepted loss against full tuning; 0.05 is 5 %.
        progress: as for `autotune.tune`.
        batch_invariant: whether all kernels add up in one order of summation.

    Raises:
        UsageError: for an impossible loss, an energy, or batch invariance of a range not of M.
        NotFoundError: with `batch_invariant`, if no order of summation serves every M.
        BudgetError: if the budget was over before the ends of the range were tuned.
        AutotuneError: as `autotune.tune`.
    """
    if not 0 < loss < math.inf:
        raise UsageError(f"loss is {loss:g}; give more than 0, such as 0.05 for 5 %")
    require_time(options, "tuning a range")
    if batch_invariant:
        _check_invariant(span, family)
    resolved = targets.resolve(device)
    targets.check_memory(span.problem, resolved)
    store, order = Store(cache_dir()), None
    with TargetOpener(device, seed=options.seed) as opener:
        run: Callable[..., Record] = partial(tuning.search_at, opener, family=family)
        if batch_invariant:
            from autotune.api import invariant  # the loop, which others import when they tune

            place = invariant.place_of(span, resolved, opener, store, options)
            run, order = place.search, place.order

        def search(problem: Problem, until: float | None, asked: Search = options) -> Record:
            with tuning.shown(problem, options, progress, named=True) as observer:
                return run(problem, replace(asked, deadline=until), observer=observer)

        return cover(
            span,
            resolved,
            store,
            search,
            loss,
            options.objective,
            family,
            partial(search, asked=options.race()) if family == AUTO else None,  # of all families
            order,
            options.deadline,
        )


def _check_invariant(span: Span, family: str) -> None:
    if span.dimension != "m":
        raise UsageError(
            f"batch invariance of a range of {span.dimension}; give M as LOW..HIGH, such as "
            "1..8192x4096x4096"
        )
    if family != AUTO:
        raise UsageError("batch invariance takes no family; leave it out")
    settings.refuse_frozen(f"cannot tune {span.problem}")


def cover(
    span: Span,
    device: Device,
    store: Store,
    search: TuneUntil,
    loss: float = LOSS,
    objective: Objective = HOT,
    family: str = AUTO,
    race: TuneUntil | None = None,
    order: str | None = None,
    deadline: float | None = None,
) -> Range:
    """Tunes sizes until the expected loss at every probe is at most `loss`, or time is over.

    `search` tunes a problem and records it; `race`, if any, does so for the sizes between the ends.
    Both keep to the `order` of summation, if there is one. The range is recorded after each size.

    Raises:
        BudgetError: if the deadline, by `time.monotonic`, is over before both ends are tuned.
    """
    records, clock, tuned = Records(store), _Clock(deadline), dict[int, Record]()
    samples = cache(lambda: _samples(span, device, order))
    pending = [*dict.fromkeys((span.high, span.low))]
    while pending:
        size = pending.pop()
        problem, between = span.at(size), span.low < size < span.high
        record = _recorded(problem, device, records, family, order)
        if record is None or not _is_tuned(record, objective, quick=bool(race) and between):
            tune = race if race and between else search
            try:
                record = tune(problem, clock.turn(len(pending) + 1))
            except BudgetError:
                if between:
                    break
                raise
        tuned[size] = record
        if pending:
            continue
        with clock.comparing():
            evidence = tuned, records.records(device), samples()
            losses = expected(span, device, *evidence, objective, order)
            covered = _range(span, device, tuned, losses, objective, family, order)
            ranges.save(store.root, covered)
        if not clock.goes_on:
            break
        if covered.loss > loss:
            pending = [max(losses, key=lambda probe: (min(losses[probe].values()), probe))]
        elif race:
            pending = _between(span, tuned)
    if covered.loss > loss:
        warnings.warn(
            f"{covered}: the budget was over at an expected loss of {covered.loss:.1%}, above "
            f"{loss:.1%}; run again to go on",
            stacklevel=2,
        )
    return covered


class _Clock:
    """Divides the time until a deadline among the searches of a range and the comparisons after
    them, which take seconds as well.

    Args:
        deadline: by `time.monotonic`; None for no end.
    """

    def __init__(self, deadline: float | None) -> None:
        self._deadline = math.inf if deadline is None else deadline
        self._kept_s = 0.0 if deadline is None else (1 - ENDS) * (deadline - monotonic())

    def turn(self, waiting: int) -> float | None:
        """The deadline of the next search, when `waiting` searches share the time; None for no
        end."""
        now = monotonic()
        ends = now + (self._deadline - now - self._kept_s) / waiting
        return None if ends == math.inf else ends

    @contextmanager
    def comparing(self) -> Iterator[None]:
        """Keeps as many seconds for the next comparison as this one takes."""
        began = monotonic()
        yield
        self._kept_s = monotonic() - began

    @property
    def goes_on(self) -> bool:
        """Whether another probe and its comparison still fit into the budget."""
        return monotonic() + 2 * self._kept_s < self._deadline


def _between(span: Span, tuned: Collection[int]) -> list[int]:
    """Probes to tune so that no two tuned sizes are more than an octave apart."""
    added = list[int]()
    for size, following in pairwise(sorted(tuned)):
        while following > OCTAVE * size:
            size = max(probe for probe in span.probes if probe <= OCTAVE * size)
            added.append(size)
    return added


def expected(
    span: Span,
    device: Device,
    tuned: Mapping[int, Record],
    records: Sequence[Record],
    samples: Samples,
    objective: Objective = HOT,
    order: str | None = None,
) -> dict[int, dict[int, float]]:
    """The expected loss at each probe with the best configuration of the next tuned size below and
    of the next above, by size; infinite where that configuration cannot run."""
    by_problem = {record.problem: record for record in (*records, *tuned.values())}
    model = learn_errors(device, by_problem.values(), objective)
    pool = _pool(model, tuned, samples)
    cards = {device, *(as_tuned(device, record.device) for record in tuned.values())}
    losses: dict[int, dict[int, float]] = {}
    for probe in span.probes:
        if probe in tuned:
            losses[probe] = {probe: 0.0}
            continue
        below = max(size for size in tuned if size < probe)
        above = min(size for size in tuned if size > probe)
        problem = span.at(probe)
        legal = [
            config
            for config in pool
            if any(Legality(problem, card, order)(config) for card in cards)
        ]
        times = dict(zip(legal, _times(model, legal, problem), strict=True))
        least = min(times.values(), default=math.inf)
        losses[probe] = {
            size: max(0.0, times.get(tuned[size].best_by(objective).config, math.inf) / least - 1)
            if least < math.inf
            else math.inf
            for size in (below, above)
        }
    return losses


def _recorded(
    problem: Problem, device: Device, records: Records, family: str, order: str | None
) -> Record | None:
    """The record that a search of the family or the order would continue."""
    if order is not None:
        return records.store.ordered(device, problem, order)
    if family != AUTO:
        return records.store.family(device, problem, family)
    return records.load(device, problem)


def _is_tuned(record: Record, objective: Objective, *, quick: bool) -> bool:
    """Whether a search for the objective has ended; with `quick`, a race is enough."""
    timed = record.of(objective) is not None
    ended = record.provenance.final or (quick and not record.provenance.interrupted)
    return timed and record.evidence != "predicted" and ended


def _pool(model: ModelError, tuned: Mapping[int, Record], samples: Samples) -> list[Config]:
    """Configurations that include one close to the best at every size of the span."""
    entries = (entry for record in tuned.values() for entry in record.entries)
    pool = {entry.config: None for entry in entries if not entry.library}
    for problem, configs in samples.items():
        times = _times(model, configs, problem)
        best = sorted(range(len(configs)), key=times.__getitem__)[:PICKED]
        pool |= dict.fromkeys(configs[place] for place in best)
    return [*pool]


def _samples(span: Span, device: Device, order: str | None) -> Samples:
    """Configurations at the ends and in the middle of a span."""
    sizes = (span.low, round(math.sqrt(span.low * span.high)), span.high)
    problems = dict.fromkeys(map(span.at, sizes))
    return {problem: sample(problem, device, order=order) for problem in problems}


def _times(model: ModelError, configs: Sequence[Config], problem: Problem) -> list[float]:
    """Predicted microseconds, `CAUTION` standard deviations above the mean."""
    return [float(time_us) for time_us in model.predict(configs, problem).cautious(CAUTION)]


def _range(
    span: Span,
    device: Device,
    tuned: Mapping[int, Record],
    losses: Mapping[int, Mapping[int, float]],
    objective: Objective,
    family: str,
    order: str | None,
) -> Range:
    """The range in which each probe, and the sizes between it and the probe before, run the tuned
    size with the least expected loss."""
    segments: list[Segment] = []
    start = span.low
    for probe in span.probes:
        point = min(losses[probe], key=lambda size: (losses[probe][size], -size))
        if segments and segments[-1].point == point:
            segments[-1] = replace(segments[-1], high=probe)
        else:
            segments.append(Segment(start, probe, point))
        start = probe + 1
    worst = max(min(by_size.values()) for by_size in losses.values())
    if not math.isfinite(worst):
        worst = 1.0  # nothing tuned runs at a probe yet: that probe is tuned next
    evidence = max((record.evidence for record in tuned.values()), key=BEST_FIRST.index)
    sizes = span.problem, span.dimension, tuple(segments)
    alone = None if family == AUTO else family
    return Range(device, *sizes, worst, evidence, objective, alone, order)
