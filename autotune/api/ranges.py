"""Tune a range of sizes, such as `1..512x4096x4096`, at few of them.

The ends are searched, and between them one size of each octave is raced. Every other size runs the
configuration of the next tuned size below or above: the one that the cost model, corrected by the
times of the tuned sizes, expects to be faster there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from time import monotonic

from autotune import settings
from autotune.api import tuning
from autotune.api.tuning import ProgressLike
from autotune.device import Device
from autotune.errors import BudgetError, UsageError
from autotune.lookup.neighbours import learn_errors
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.objective import HOT, Objective
from autotune.measure.targets import TargetOpener
from autotune.model.legality import Legality, as_tuned
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Record, Records, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.records.record import BEST_FIRST
from autotune.settings import cache_dir
from autotune.tuning.options import Search, require_time

OCTAVE = 2
"""The largest ratio of a tuned size to the next one."""

ENDS = 0.5
"""Share of a budget for the ends of a range; the rest is for racing the sizes between."""

TuneUntil = Callable[[Problem, float | None], Record]
"""Tunes a problem until a time by `time.monotonic`; None sets none."""


def tune(
    span: Span,
    options: Search,
    device: DeviceLike = DEFAULT,
    *,
    progress: ProgressLike = False,
    batch_invariant: bool = False,
) -> Range:
    """Tunes a few sizes of a range, and records which tuned size serves which others:
    `autotune.tune` of a range with its arguments decoded.

    Args:
        span: the range.
        options: the search of each end.
        device: as for `autotune.tune`.
        progress: as for `autotune.tune`.
        batch_invariant: whether all kernels add up in one order of summation.

    Raises:
        UsageError: for an energy, or batch invariance of a range not of M.
        NotFoundError: with `batch_invariant`, if no order of summation serves every M.
        BudgetError: if the budget was over before the ends of the range were tuned.
        AutotuneError: as `autotune.tune`.
    """
    require_time(options, "tuning a range")
    if batch_invariant and span.dimension != "m":
        raise UsageError(
            f"batch invariance of a range of {span.dimension}; give M as LOW..HIGH, such as "
            "1..8192x4096x4096"
        )
    settings.refuse_frozen(f"cannot tune {span.problem}")
    resolved = targets.resolve(device)
    targets.check_memory(span.problem, resolved)
    store, order = Store(cache_dir()), None
    with TargetOpener(device, seed=options.seed) as opener:
        run: Callable[..., Record] = partial(tuning.search_at, opener)
        if batch_invariant:
            from autotune.api import invariant  # the loop, which others import when they tune

            place = invariant.place_of(span, resolved, opener, store, options)
            run, order = place.search, place.order

        def search(problem: Problem, until: float | None, asked: Search = options) -> Record:
            with tuning.shown(problem, options, progress, named=True) as observer:
                return run(problem, replace(asked, deadline=until), observer=observer)

        race = partial(search, asked=options.race())
        ends = options.objective, order, options.deadline
        return cover(span, resolved, store, search, race, *ends)


def cover(
    span: Span,
    device: Device,
    store: Store,
    search: TuneUntil,
    race: TuneUntil,
    objective: Objective = HOT,
    order: str | None = None,
    deadline: float | None = None,
) -> Range:
    """Tunes the ends of a range by `search` and the sizes between by `race`; both record what they
    tune, and keep to the `order` of summation, if there is one. The range is recorded after each
    size. Sizes that were tuned before are not tuned again.

    Raises:
        BudgetError: if the deadline, by `time.monotonic`, is over before both ends are tuned.
    """
    records, tuned = Records(store), dict[int, Record]()
    middle = None if deadline is None else deadline - (1 - ENDS) * (deadline - monotonic())

    def made(size: int, tune: TuneUntil, end: float | None, waiting: int) -> Record:
        problem = span.at(size)
        record = _recorded(problem, device, records, order)
        if record is not None and _is_tuned(record, objective, quick=tune is race):
            return record
        return tune(problem, _turn(end, waiting))

    def saved() -> Range:
        covered = _range(span, device, tuned, objective, order)
        ranges.save(store.root, covered)
        return covered

    ends = [*dict.fromkeys((span.low, span.high))]
    for place, size in enumerate(ends):
        tuned[size] = made(size, search, middle, len(ends) - place)
    covered, sizes = saved(), _between(span)
    for place, size in enumerate(sizes):
        try:
            tuned[size] = made(size, race, deadline, len(sizes) - place)
        except BudgetError:
            settings.warn_once(
                f"{covered}: the budget was over with {len(sizes) - place} sizes to tune; run "
                "again to go on"
            )
            break
        covered = saved()
    return covered


def _turn(end: float | None, waiting: int) -> float | None:
    """The deadline of the next search, when `waiting` searches share the time until `end`.

    Raises:
        BudgetError: if it is over.
    """
    if end is None:
        return None
    now = monotonic()
    if now >= end:
        raise BudgetError("the budget was over before both ends of the range were tuned")
    return now + (end - now) / waiting


def _between(span: Span) -> list[int]:
    """The sizes between the ends, so that no two are more than an octave apart."""
    sizes, size = list[int](), span.low
    while span.high > OCTAVE * size:
        size = max(probe for probe in span.probes if probe <= OCTAVE * size)
        sizes.append(size)
    return sizes


def _recorded(
    problem: Problem, device: Device, records: Records, order: str | None
) -> Record | None:
    """The record that a search of the order would continue."""
    if order is not None:
        return records.store.ordered(device, problem, order)
    return records.load(device, problem)


def _is_tuned(record: Record, objective: Objective, *, quick: bool) -> bool:
    """Whether a search for the objective has ended; with `quick`, a race is enough."""
    timed = record.of(objective) is not None
    ended = record.provenance.final or (quick and not record.provenance.interrupted)
    return timed and record.evidence != "predicted" and ended


def _range(
    span: Span,
    device: Device,
    tuned: Mapping[int, Record],
    objective: Objective,
    order: str | None,
) -> Range:
    """The range in which each probe, and the sizes between it and the probe before, run a tuned
    size: the probe itself, or of the next one above and below that which is expected to be faster.
    """
    model = learn_errors(device, tuned.values(), objective)

    def expected_us(size: int, problem: Problem) -> float:
        record = tuned[size].without_library
        if record is None:
            return math.inf
        config = record.best_by(objective).config
        legal = Legality(problem, as_tuned(device, record.device), order)
        return float(model.predict([config], problem).times[0]) if legal(config) else math.inf

    def serving(probe: int) -> int:
        if probe in tuned:
            return probe
        above = min(size for size in tuned if size > probe)
        below = max(size for size in tuned if size < probe)
        return min((above, below), key=partial(expected_us, problem=span.at(probe)))

    segments: list[Segment] = []
    for probe in span.probes:
        point = serving(probe)
        if segments and segments[-1].point == point:
            segments[-1] = replace(segments[-1], high=probe)
        else:
            start = segments[-1].high + 1 if segments else span.low
            segments.append(Segment(start, probe, point))
    evidence = max((record.evidence for record in tuned.values()), key=BEST_FIRST.index)
    sizes = span.problem, span.dimension, tuple(segments)
    return Range(device, *sizes, evidence, objective, order)
