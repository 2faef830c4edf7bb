"""The events of a tuning run, for whoever shows its progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol, TypeVar

from autotune.families.config import Config
from autotune.records import TuningRecord
from autotune.runners.base import Measurement
from autotune.tuning.evaluate import Trial

T = TypeVar("T")


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        trials: configurations evaluated, those of earlier runs included.
        failures: how many of them failed.
        best: the fastest so far; None if none has a time.
        seconds: since the run began.
        busy: the share (0..1) of that time in which the devices worked on candidates.
    """

    trials: int
    failures: int
    best: Trial | None
    seconds: float
    busy: float = 0.0


class Observer(Protocol):
    """Receives the events of a run in the order of the methods; `trial` many times.

    An exception from an observer ends the run, after everything measured is recorded.
    """

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        """There are `feasible` configurations; `rejected` counts the others by reason."""

    def baseline(self, measurement: Measurement | None) -> None:
        """The vendor baseline was timed; None if there is no vendor library."""

    def trial(self, trial: Trial, progress: Progress) -> None:
        """A configuration was evaluated; the trial is in the journal."""

    def enough(self, outlook: float) -> None:
        """The search ends: further trials are expected to gain at most this share of the time."""

    def rematch(self, leaders: Sequence[Trial]) -> None:
        """The leaders are about to be timed interleaved."""

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        """The record was written; also sent if the run was interrupted."""


class Silent:
    """An observer that ignores every event."""

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None: ...

    def baseline(self, measurement: Measurement | None) -> None: ...

    def trial(self, trial: Trial, progress: Progress) -> None: ...

    def enough(self, outlook: float) -> None: ...

    def rematch(self, leaders: Sequence[Trial]) -> None: ...

    def finished(self, record: TuningRecord, progress: Progress) -> None: ...


class WrittenTrials:
    """Passes the events of trials on to an observer once the trials are in the journal.

    Args:
        observer: receives the events.
        unwritten: the configurations of finished trials that are not in the journal yet.
    """

    def __init__(self, observer: Observer, unwritten: Callable[[], AbstractSet[Config]]) -> None:
        self._observer, self._unwritten = observer, unwritten
        self._due: deque[tuple[Trial, Progress]] = deque()

    def add(self, trial: Trial, progress: Progress) -> None:
        """Passes the event of a trial on, now or at a later call."""
        self._due.append((trial, progress))
        self.pass_on()

    def pass_on(self) -> None:
        """Passes on, in order, the events whose trials have been written."""
        while self._due and self._due[0][0].config not in self._unwritten():
            self._observer.trial(*self._due.popleft())

    def between(self, candidates: Iterable[T]) -> Iterator[T]:
        """The candidates; events are passed on while a device measures the last one."""
        for candidate in candidates:
            self.pass_on()
            yield candidate
