"""The search of a tuning run: what it starts with, and what it need not try."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autotune.device import Device
from autotune.families.config import Config
from autotune.records import Store, TuningRecord
from autotune.runners.base import Measurement, Runner
from autotune.tuning import objective
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Search
from autotune.tuning.race import Race
from autotune.tuning.search import Proposer
from autotune.tuning.search.axes import Axis
from autotune.tuning.tunable import SURVEY, Candidates, Tunable


def race_of(
    tunable: Tunable[TuningRecord],
    runner: Runner,
    store: Store,
    options: Search,
    barred: Callable[[Config], bool],
) -> Race:
    """The race with which a run begins, without `barred` configurations: of a quick run, and of a
    guided search unless its configurations are recorded."""
    if not options.quick and not (options.guided and runner.known() is None):
        return Race(None)
    contenders = tunable.contenders(runner.device, store, options.objective)
    return Race(contenders and contenders.without(barred))


def listed(
    tunable: Tunable[TuningRecord],
    runner: Runner,
    store: Store,
    options: Search,
    barred: Callable[[Config], bool],
    race: Race,
) -> tuple[Candidates, tuple[Config, ...]]:
    """The candidates that are not `barred`, including the race's, and the guesses of the search."""
    survey = None if options.sampling == "exhaustive" else SURVEY
    candidates = tunable.candidates(runner, barred, survey=survey).extended_by(race.considered)
    return candidates, tunable.guesses(candidates, runner.device, store, options.objective)


def race_search(configs: Sequence[Config], told: Sequence[Trial]) -> Proposer:
    """The search that tries all configurations of a race, without those among the trials `told`."""
    return Proposer(configs, sampler="exhaustive", told=told)


def search_of(
    tunable: Tunable[TuningRecord],
    device: Device,
    options: Search,
    candidates: Candidates,
    guesses: Sequence[Config],
    axes: tuple[Axis, ...],
    told: Sequence[Trial],
) -> Proposer:
    """The search among the candidates that continues from the trials `told`."""
    return Proposer(
        candidates.configs,
        axes,
        sampler=options.sampling,
        seed=options.seed,
        guesses=guesses,
        told=told,
        describe=tunable.describe(device),
        value=options.score or (lambda trial: objective.value(trial, options.objective)),
    )


def refuse_inaccurate(
    search: Proposer, tunable: Tunable[TuningRecord], baseline: Measurement | None
) -> None:
    """Spares the search what is predicted to be less accurate than the vendor baseline allows."""
    if baseline is not None:
        search.refuse(tunable.inaccurate(search.configs, baseline))
