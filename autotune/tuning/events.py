"""The events of a tuning run, for whoever shows its progress."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.measure.measurement import Measurement
from autotune.records import TuningRecord
from autotune.tuning.evaluate import Trial


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
        """A configuration was evaluated; the trial is in the log."""

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
