"""Continuing from earlier runs: the study, its trial log, and the trials that still hold."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.source_text import hash_of, narrowed, shortened
from autotune.records import Store, TuningRecord
from autotune.records.merging import HasOrigin, sources_of
from autotune.records.record import folder_of
from autotune.runners.base import Evidence, Failure, Runner
from autotune.runners.recording import Origin
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.axes import Axis
from autotune.tuning.search.trial_log import TrialLog, place
from autotune.tuning.tunable import Tunable


def open_log(
    tunable: Tunable[TuningRecord],
    runner: Runner,
    store: Store,
    origin: Origin,
    axes: tuple[Axis, ...],
    storage: str | None,
) -> TrialLog:
    """The trial log of a tunable's study in the store, shared through an Optuna storage if one is
    given."""
    study = study_of(tunable.kinds, origin)
    folder, stem = studies_of(store.root, runner.device, runner.evidence, tunable.slug)
    path = place(folder, stem, study)
    if storage is None:
        return TrialLog(path, study)
    from autotune.tuning.search.storage import SharedLog

    return SharedLog(path, study, storage, f"{folder.name}/{stem}/{study}", axes)


def studies_of(root: Path, device: Device, evidence: Evidence, slug: str) -> tuple[Path, str]:
    """The folder of the trial logs of a tunable in the cache `root`, and how their names begin."""
    return root / "studies" / folder_of(device, evidence), f"{slug}.{evidence}"


def study_of(kinds: str, origin: Origin) -> str:
    """The name of the study whose trials can be compared: kernels of these kinds and sources, made
    by one compiler and run by one driver.

    The hashes of several families are shortened: a database takes names of 512 characters.
    """
    source = narrowed(origin.source, kinds.split("+")) or origin.source
    named = source if ":" not in source else shortened(source)
    return "@".join((kinds, named, *tools_of(origin)))


def tools_of(origin: HasOrigin) -> tuple[str, ...]:
    """The compiler and the driver that end a study's name, each if it is known."""
    return tuple(tool for tool in (origin.compiler, origin.driver) if tool)


def led_to(study: str, record: TuningRecord) -> bool:
    """Whether a study, by its name, has the record's driver, compiler and kernel sources."""
    source, *tools = study.partition("@")[2].split("@")
    if tuple(tools) != tools_of(record.provenance):
        return False
    return all(
        shortened(hash_of(source, family)) == shortened(own)
        for family, own in sources_of(record).items()
    )


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
