"""What a tuning run tells while it goes on; who shows it is another's business."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from autotune.records import TuningRecord
from autotune.runners.base import Measurement
from autotune.tuning.evaluate import Trial


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        trials: configurations evaluated, those of earlier runs included.
        failures: how many of them failed.
        best: the fastest so far; None if none has a time.
        seconds: since the run began.
        busy: the share (0..1) of them in which the devices were at work on candidates.
    """

    trials: int
    failures: int
    best: Trial | None
    seconds: float
    busy: float = 0.0


class Observer(Protocol):
    """Is told what happens, in the order of the methods; `trial` many times.

    The run ends with what an observer raises, after what was measured is recorded.
    """

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        """There are `feasible` configurations; `rejected` counts the others by reason."""

    def baseline(self, measurement: Measurement | None) -> None:
        """The vendor library was timed; None where there is none."""

    def trial(self, trial: Trial, progress: Progress) -> None:
        """A configuration was evaluated, and is in the journal."""

    def enough(self, outlook: float) -> None:
        """The search ends, as all that is left is expected to give only this share of the time."""

    def rematch(self, leaders: Sequence[Trial]) -> None:
        """The leaders are about to be timed against each other."""

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        """The record was written, also if the run was interrupted."""


class Silent:
    """Shows nothing."""

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None: ...

    def baseline(self, measurement: Measurement | None) -> None: ...

    def trial(self, trial: Trial, progress: Progress) -> None: ...

    def enough(self, outlook: float) -> None: ...

    def rematch(self, leaders: Sequence[Trial]) -> None: ...

    def finished(self, record: TuningRecord, progress: Progress) -> None: ...
