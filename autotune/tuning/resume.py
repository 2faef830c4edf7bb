"""Continuing from earlier runs: the study, its journal, and the trials that still hold."""

from __future__ import annotations

from collections.abc import Iterable

from autotune.families.config import Config
from autotune.records import Store, TuningRecord
from autotune.records.record import folder_of
from autotune.runners.base import Failure, Runner
from autotune.runners.recording import Origin
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Journal
from autotune.tuning.search.axes import Axis
from autotune.tuning.tunable import Tunable


def open_journal(
    tunable: Tunable[TuningRecord],
    runner: Runner,
    store: Store,
    origin: Origin,
    axes: tuple[Axis, ...],
    storage: str | None,
) -> Journal:
    """The journal of a tunable's study, in the store or in an Optuna storage."""
    device, slug = folder_of(runner.device, runner.evidence), tunable.slug
    path = store.root / "studies" / device / f"{slug}.{runner.evidence}.log"
    study = study_of(tunable.kinds, origin)
    if storage is None:
        return Journal(path, study, axes)
    return Journal(storage, f"{device}/{path.stem}/{study}", axes)


def study_of(kinds: str, origin: Origin) -> str:
    """The name of the study whose trials can be compared: kernels of these kinds and sources, made
    by one compiler and run by one driver."""
    tools = "".join(f"@{tool}" for tool in (origin.compiler, origin.driver) if tool)
    return f"{kinds}@{origin.source}{tools}"


def still_hold(
    trials: Iterable[Trial], tunable: Tunable[TuningRecord], configs: tuple[Config, ...]
) -> list[Trial]:
    """The trials that today's candidates and stages would repeat alike."""
    earlier = [*trials]
    if not earlier:
        return []
    legal = frozenset(configs)
    return [
        trial
        for trial in earlier
        if (
            tunable.stands(trial.outcome.stage)
            if isinstance(trial.outcome, Failure)
            else trial.config in legal
        )
    ]
