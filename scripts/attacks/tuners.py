"""Tuning runs on a recording in forked processes, which say what they told and can be killed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path

from support.fake_runner import uncompiled

from attacks.forks import Fork, Send, answer
from autotune.families.config import Config
from autotune.measure import recording
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem import Problem
from autotune.records import Store, TuningRecord
from autotune.records.inventory import scan
from autotune.tuning.loop import tune
from autotune.tuning.options import Search
from autotune.tuning.proposals import open_log
from autotune.tuning.search.axes import axes_of
from autotune.tuning.trials import Progress, Silent, Trial
from autotune.tuning.tunable import GemmTunable

PROBLEM = Problem(1024, 1024, 1024)


TUNABLE = GemmTunable(PROBLEM, "auto")


@dataclass(frozen=True)
class Place:
    """Where a tuner keeps what it finds.

    Attributes:
        cache: the cache directory.
        storage: as `--storage`; None for the log in the cache alone.
    """

    cache: Path
    storage: str | None = None


@lru_cache(maxsize=1)
def recorded() -> Recording:
    """The recording that is tuned on."""
    return recording.find("h100", PROBLEM)


class SlowRunner(ReplayRunner):
    """A replay that says what it measures and takes its time.

    Args:
        measuring: called with the configuration when its measurement begins.
    """

    def __init__(self, measuring: Callable[[Config], None], seed: int) -> None:
        super().__init__(recorded(), seed)
        self._measuring = measuring

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        self._measuring(candidate.config)
        return super().measure(candidate, best, objective)


class Telling(Silent):
    """An observer that sends every trial it is told, and when the record was written."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del feasible, rejected
        self._send({"started": progress.trials})

    def trial(self, trial: Trial, progress: Progress) -> None:
        del progress
        timed = isinstance(trial.outcome, Measurement)
        self._send({"told": str(trial.config), "timed": timed})

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        del record, progress
        self._send({"recorded": True})


def tuner(
    place: Place, options: Search, measuring: Callable[[Config], None] = lambda _: None
) -> Callable[[Send], None]:
    """The life of a tuning process."""

    def run(send: Send) -> None:
        os.environ["AUTOTUNE_CACHE_DIR"] = str(place.cache)
        tune(
            TUNABLE,
            SlowRunner(measuring, options.seed),
            Store(place.cache),
            replace(options, storage=place.storage),
            compile=uncompiled,
            origin=recorded().origin,
            observer=Telling(send),
        )
        send({"ended": True})

    return run


def warm(folder: Path) -> None:
    """Imports and computes in this process what every tuner needs, so that forks start fast."""
    place = Place(folder / "cache", f"sqlite:///{folder}/study.db")
    folder.mkdir()
    tuner(place, Search(trials=2, sampler="gp"))(lambda _: None)


def started(place: Place, options: Search) -> Fork:
    """A running tuner."""
    return Fork(tuner(place, options))


@dataclass(frozen=True)
class Found:
    """The content of the disk as a later process finds it.

    Attributes:
        trials: the configurations of the trials, in the log's order.
        timed: how many of them have a time.
        record: whether there is a record.
        faults: warnings, broken files, and what was raised.
    """

    trials: Sequence[str]
    timed: int
    record: bool
    faults: tuple[str, ...]


def found(place: Place, prepare: Callable[[], None] = lambda: None) -> Found:
    """Reads the disk with the package, in a process of its own.

    Args:
        place: where to look.
        prepare: called in that process first.
    """
    messages = answer(partial(_look, place, prepare))
    faults = [message["raised"] for message in messages if "raised" in message]
    looks = [message for message in messages if "trials" in message]
    if not looks:
        return Found((), 0, False, (*faults, "the log could not be read within 60 s"))
    look = looks[0]
    return Found(look["trials"], look["timed"], look["record"], (*faults, *look["faults"]))


def _look(place: Place, prepare: Callable[[], None], send: Send) -> None:
    prepare()
    os.environ["AUTOTUNE_CACHE_DIR"] = str(place.cache)
    store, runner = Store(place.cache), ReplayRunner(recorded())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        log = open_log(
            TUNABLE, runner, store, recorded().origin, axes_of(runner.known()), place.storage
        )
        trials = log.told
        log.close()
        record = store.load(runner.device, PROBLEM)
        broken = [
            f"{item.path.name}: {item.fault}"
            for item in scan(place.cache, thorough=True)
            if item.fault
        ]
    send(
        {
            "trials": [str(trial.config) for trial in trials],
            "timed": sum(isinstance(trial.outcome, Measurement) for trial in trials),
            "record": record is not None,
            "faults": [*broken, *(str(warning.message) for warning in caught)],
        }
    )
