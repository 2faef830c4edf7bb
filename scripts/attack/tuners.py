"""Tuning runs on a recording in forked processes, which say what they told and can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from time import monotonic
from typing import Any

from support.fake_runner import uncompiled

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

FRAMES = 6
"""Frames of a traceback that are told."""

Send = Callable[[Any], None]
"""Sends a JSON value to the parent; a value that was sent survives the death of its sender."""


class Fork:
    """A forked process that runs a function.

    The function gets a `Send`. Its exception is sent as `{"raised": ...}`, with where.

    Attributes:
        pid: of the process.
        status: as `os.waitstatus_to_exitcode`; None while it runs.
    """

    def __init__(self, run: Callable[[Send], None]) -> None:
        reader, writer = os.pipe()
        self.status: int | None = None
        self._buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _run(run, writer)
        os.close(writer)
        self._reader = reader

    def messages(self, seconds: float) -> Iterator[Any]:
        """The messages until the process ends, or for so many seconds."""
        deadline = monotonic() + seconds
        while (line := self.line(deadline)) is not None:
            yield line

    def line(self, deadline: float) -> Any | None:
        """The next message; None at the end of the process or at the deadline."""
        while b"\n" not in self._buffer:
            left = deadline - monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return None
            chunk = os.read(self._reader, 1 << 16)
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal; a process that has ended ignores it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> int:
        """The exit status, or minus the number of the signal; waits for the process."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._reader)
        return self.status


def answer(run: Callable[[Send], None], seconds: float = 60.0) -> list[Any]:
    """All messages of a forked process, which is killed after so many seconds."""
    fork = Fork(run)
    try:
        return [*fork.messages(seconds)]
    finally:
        fork.kill()
        fork.ended()


def _run(run: Callable[[Send], None], writer: int) -> None:
    """The whole life of a forked process."""

    def send(message: Any) -> None:
        os.write(writer, json.dumps(message).encode() + b"\n")

    status = 1
    try:
        run(send)
        status = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            what = f"{type(error).__name__}: {str(error)[:200]}"
            send({"raised": f"{what} ({_where(error)})"})
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _where(error: BaseException) -> str:
    """The innermost frames of a traceback, the last one first."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )


@dataclass(frozen=True)
class Outcome:
    """The counts of a part and the promises it saw broken.

    Attributes:
        counts: how often something was tried or seen.
        peaks: the largest value of a figure, such as seconds or MB.
        broken: a line for each broken promise; it says how to repeat the case.
        skipped: why a part of the work could not be done here.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[str, float] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def merged(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of all shares of a part: counts added, peaks kept."""
    outcomes = tuple(outcomes)
    counts: Counter[str] = Counter()
    peaks: dict[str, float] = {}
    for outcome in outcomes:
        counts.update(outcome.counts)
        for name, value in outcome.peaks.items():
            peaks[name] = max(value, peaks.get(name, value))
    return Outcome(
        counts=dict(counts),
        peaks=peaks,
        broken=tuple(line for outcome in outcomes for line in outcome.broken),
        skipped=tuple(dict.fromkeys(line for outcome in outcomes for line in outcome.skipped)),
    )


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
