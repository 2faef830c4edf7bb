"""Problems of many sizes in one dimension, tuned at as few of them as it takes.

    autotune.tune_range("1..512x4096x4096:bf16")

The ends are tuned first. At sizes between, the cost model, corrected by all that is recorded, says
how much longer the configurations of the tuned sizes take than the best there seems to be; where
that is too much, the size is tuned as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from autotune.api import tuning
from autotune.candidates.model_error import ModelError
from autotune.candidates.recorded import is_legal
from autotune.candidates.survey import survey
from autotune.device import Device
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.lookup.neighbours import experience as experience_of
from autotune.problem import Problem, ProblemDefaults
from autotune.problem.span import Span
from autotune.records import Record, Records, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.records.record import BEST_FIRST
from autotune.settings import cache_dir
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.tuning.events import Observer
from autotune.tuning.options import Options, options_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

LOSS = 0.05
"""The loss against full tuning that is put up with unless the caller says otherwise."""
# The model's best at both ends and in the middle, of which the best at a size is taken to be one.
PICKED = 150
CAUTION = 1.0

Tune = Callable[[Problem], Record]


def tune_range(
    text: str,
    *,
    device: DeviceLike = DEFAULT,
    loss: float = LOSS,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "gp",
    family: str = "auto",
    jobs: int | None = None,
    observer: Observer | None = None,
    **arguments: Unpack[ProblemDefaults],
) -> Range:
    """Tunes as few problems of a range as keep the expected loss small, and records which serves
    which size.

    What is recorded already is not tuned again. The range is recorded as it grows: an interrupt
    loses no point, and a second call goes on.

    Args:
        text: such as `1..512x4096x4096:bf16`: one size varies, from 1 to 512.
        loss: against full tuning, 0.05 for 5 %.
        budget: seconds of each search; the other arguments are those of `api.tune`.

    Raises:
        UsageError: for an impossible range or loss, an unknown device, or limits that are none.
        AutotuneError: as `api.tune`.
    """
    span = Span.parse(text, **arguments)
    options = options_of(trials, budget, seed, sampler, jobs)
    return tune(span, options, device=device, family=family, loss=loss, observed=lambda _: observer)


def tune(
    span: Span,
    options: Options,
    *,
    device: DeviceLike = DEFAULT,
    family: str = "auto",
    loss: float = LOSS,
    observed: Callable[[Problem], Observer | None] = lambda _: None,
) -> Range:
    """`tune_range` for values that are checked already; `observed` gives each search its
    observer."""

    def search(problem: Problem) -> Record:
        return tuning.search(
            problem, options, device=device, family=family, observer=observed(problem)
        )

    if not 0 < loss < math.inf:
        raise UsageError(f"loss is {loss:g}; give more than 0, such as 0.05 for 5 %")
    where = targets.resolve(device)
    targets.check_memory(span.problem, where)
    return cover(span, where, Store(cache_dir()), search, loss)


def cover(span: Span, device: Device, store: Store, search: Tune, loss: float = LOSS) -> Range:
    """Tunes points by `search`, which records them, until the loss expected at every probe is at
    most `loss`; the range is recorded after each."""
    library = Records(store)
    tuned: dict[int, Record] = {}
    pending = [span.high, span.low]
    while pending:
        size = pending.pop()
        problem = span.at(size)
        known = library.load(device, problem)
        tuned[size] = search(problem) if known is None or _guessed(known) else known
        if pending:
            continue
        losses = expected(span, device, tuned, library.records(device))
        found = _range(span, device, tuned, losses)
        ranges.save(store.root, found)
        if found.loss > loss:
            pending.append(max(losses, key=lambda probe: (min(losses[probe].values()), probe)))
    return found


def expected(
    span: Span, device: Device, tuned: Mapping[int, Record], records: Sequence[Record]
) -> dict[int, dict[int, float]]:
    """For each probe, the loss expected with what is recorded at the next tuned sizes on either
    side; infinite where that cannot run."""
    middle = span.at(round(math.sqrt(span.low * span.high)))
    known = {record.problem: record for record in (*records, *tuned.values())}
    experience = experience_of(middle, device, [*known.values()])
    pool = _pool(span, device, experience, tuned)
    losses: dict[int, dict[int, float]] = {}
    for probe in span.probes:
        if probe in tuned:
            losses[probe] = {probe: 0.0}
            continue
        below = max(size for size in tuned if size < probe)
        above = min(size for size in tuned if size > probe)
        problem = span.at(probe)
        usable = [one for one in pool if is_legal(one, problem, device)]
        times = dict(zip(usable, _times(experience, usable, problem), strict=True))
        least = min(times.values(), default=math.inf)
        losses[probe] = {
            size: max(0.0, times.get(tuned[size].best.config, math.inf) / least - 1)
            if least < math.inf
            else math.inf
            for size in (below, above)
        }
    return losses


def _pool(
    span: Span, device: Device, experience: ModelError, tuned: Mapping[int, Record]
) -> list[Config]:
    """Configurations of which one is about the best at every size of the span."""
    found = {entry.config: None for record in tuned.values() for entry in record.entries}
    for size in dict.fromkeys((span.low, round(math.sqrt(span.low * span.high)), span.high)):
        problem = span.at(size)
        configs = survey(problem, device)
        times = _times(experience, configs, problem)
        best = sorted(range(len(configs)), key=times.__getitem__)[:PICKED]
        found |= dict.fromkeys(configs[place] for place in best)
    return [*found]


def _times(experience: ModelError, configs: Sequence[Config], problem: Problem) -> list[float]:
    """Microseconds, a little more for those of which little is known: the fastest of many guesses
    would be too fast."""
    return [float(time_us) for time_us in experience.predict(configs, problem).cautious(CAUTION)]


def _range(
    span: Span,
    device: Device,
    tuned: Mapping[int, Record],
    losses: Mapping[int, Mapping[int, float]],
) -> Range:
    """Each probe, with the sizes up to it from the one before, runs what loses least there."""
    segments: list[Segment] = []
    start = span.low
    for probe in span.probes:
        point = min(losses[probe], key=lambda size: (losses[probe][size], -size))
        if segments and segments[-1].point == point:
            segments[-1] = replace(segments[-1], high=probe)
        else:
            segments.append(Segment(start, probe, point))
        start = probe + 1
    worst = max(min(one.values()) for one in losses.values())
    if not math.isfinite(worst):
        worst = 1.0  # a probe that nothing can run yet: it is tuned next
    evidence = max((one.evidence for one in tuned.values()), key=BEST_FIRST.index)
    return Range(device, span.problem, span.dimension, tuple(segments), worst, evidence)


def _guessed(record: Record) -> bool:
    return record.evidence == "predicted"
