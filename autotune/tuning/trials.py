"""Trials: their values, the quarantine, the events of a run, and the leaderboard.

A trial is the outcome of one configuration; a failure is a value like a time. The leaderboard holds
trials to the vendor's accuracy and ranks them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families import cublaslt
from autotune.families.config import Config
from autotune.families.plan import OWN, Resources
from autotune.families.source_text import hash_of
from autotune.measure.measurement import Evidence, Failure, Measurement
from autotune.measure.objective import COLD, HOT, OBJECTIVES, TIMES, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.records import Entry, Store, TuningRecord

DANGEROUS = ("crash", "timeout")
"""Stages whose failures can also hit the next candidate, or the device."""


@dataclass(frozen=True)
class Trial:
    """The outcome of one configuration.

    `resources` are those of the dominant launch. They, `occupancy` (0..1) and `limiter` are None
    for a configuration that failed before it could run. `code` is the hash of its machine code
    (`program.code_digest`); empty if it was not compiled in this run.
    """

    config: Config
    outcome: Measurement | Failure
    resources: Resources | None = None
    occupancy: float | None = None
    limiter: str | None = None
    code: str = field(default="", compare=False, repr=False)

    @classmethod
    def of(cls, candidate: Candidate, outcome: Measurement | Failure, device: Device) -> Trial:
        """The trial of a candidate that the runner ran or refused."""
        resources = candidate.resources
        if candidate.plan.library:
            return cls(candidate.config, outcome, resources, 0.0, OWN)
        resident = resources.occupancy(device, candidate.plan.main.cluster)
        code = "" if isinstance(outcome, Failure) else candidate.code
        return cls(candidate.config, outcome, resources, resident.occupancy, resident.limiter, code)

    @property
    def time_us(self) -> float:
        """Median hot time in microseconds; infinite for a failure."""
        return self.outcome.time_us if isinstance(self.outcome, Measurement) else math.inf

    def time(self, objective: Objective) -> float:
        """Median hot or cold time in microseconds; infinite if there is none."""
        if isinstance(self.outcome, Failure):
            return math.inf
        estimate = objective.estimate(self.outcome)
        return math.inf if estimate is None else estimate.time_us

    @property
    def entry(self) -> Entry | None:
        """The entry to record; None for a failure."""
        if (
            isinstance(self.outcome, Failure)
            or self.resources is None
            or self.occupancy is None
            or self.limiter is None
        ):
            return None
        return Entry(
            self.config, self.outcome, self.resources, self.occupancy, self.limiter, self.code
        )


class Quarantine:
    """The store's quarantine for kernels of some sources: other sources may have fixed a kernel.

    Only live devices have one: a recording or a model is in no danger.
    """

    def __init__(self, store: Store, device: Device, evidence: Evidence, source: str) -> None:
        self._store, self._device = store, device
        self._live = evidence == "measured"
        self._source = source

    def barred(self) -> frozenset[Config]:
        """The quarantined configurations."""
        barred: set[Config] = set()
        for key in self._store.quarantined(self._device) if self._live else ():
            with suppress(ConfigError):
                config = Config.parse(key.rpartition("@")[0])
                if self._key(config) == key:
                    barred.add(config)
        return frozenset(barred)

    def note(self, tunable: object, config: Config, failure: Failure) -> None:
        """Quarantines a configuration if its failure endangers the device.

        Raises:
            CacheError: if the quarantine cannot be written.
        """
        if self._live and failure.stage in DANGEROUS:
            reason = f"{tunable}: {failure.stage}: {failure.reason}"
            self._store.quarantine(self._device, self._key(config), reason)

    def _key(self, config: Config) -> str:
        return f"{config}@{hash_of(self._source, config.family)}"


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        trials: configurations evaluated, those of earlier runs included.
        failures: number of failed trials.
        best: the fastest so far; None if none has a time.
        seconds: since the run began.
        busy: the share (0..1) of that time in which the devices worked on candidates.
    """

    trials: int
    failures: int
    best: Trial | None
    seconds: float
    busy: float = 0.0


class Observer:
    """Receives the events of a run in the order of the methods; `trial` many times.

    A subclass overrides the events that it needs; the others are ignored. An exception from an
    observer ends the run, after everything measured is recorded.
    """

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        """Event: `feasible` configurations were found; `rejected` counts the illegal ones by
        reason."""

    def baseline(self, measurement: Measurement | None) -> None:
        """The vendor baseline was timed; None if there is no vendor library."""

    def trial(self, trial: Trial, progress: Progress) -> None:
        """A configuration was evaluated; the trial is in the log."""

    def enough(self, gain: float) -> None:
        """The search ends: further trials are expected to gain at most this share of the time."""

    def rematch(self, leaders: Sequence[Trial]) -> None:
        """The leaders are about to be timed interleaved."""

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        """The record was written; also sent if the run was interrupted."""


LEADERS = 10
"""Trials that are timed interleaved at the end, and recorded."""

BY_OTHER_OBJECTIVE = 2
"""Leaders by the time that is not the objective."""

OF_LIBRARY = 5
"""Leaders that are algorithms of cuBLASLt, besides the best by the other objective: with another
version of the library the kernels have to serve."""

NEAR = 1.1
"""The best of a family is a leader up to this multiple of the best time: it may owe its place to
how little of that family was searched."""

AccuracyCheck = Callable[[Measurement, Measurement], Measurement | Failure]
"""The measurement, or a failure if it is too inaccurate beside the vendor baseline's."""


class Leaderboard:
    """The trials of this run and of earlier ones.

    The vendor baseline sets the accuracy that trials are held to, often after they ran.

    Attributes:
        trials: trials in the order in which they finished.
        failures: number of failed trials.
        timed: configurations that have a time.
        best: the fastest by the objective; None if none has such a time.
        baseline: the vendor baseline; None checks nothing.
        closest: the most accurate of the refused trials, with its error; None before the first.

    Args:
        objective: the time to minimise.
        score: a function that is minimised in place of the time.
        reach: the multiple of the best value up to which trials are leaders. The best of near
            families and by the other objective are leaders beyond it.
        check: refuses what is too inaccurate.
    """

    def __init__(
        self,
        objective: Objective = HOT,
        score: Callable[[Trial], float] | None = None,
        reach: float = math.inf,
        check: AccuracyCheck = lambda measurement, _: measurement,
    ) -> None:
        self._objective: Objective = objective
        self._score, self._reach, self._check = score, reach, check
        self.baseline: Measurement | None = None
        self.closest: tuple[float, Config, Failure] | None = None
        self.best: Trial | None
        self.timed: set[Config]
        self._rematched: list[Trial] | None = None
        self._replace(())

    def add(self, trial: Trial) -> Trial:
        """Adds a trial; a failure replaces earlier trials of its configuration.

        Returns:
            The trial; a failure if it is less accurate than the vendor baseline allows.
        """
        trial = self._checked(trial)
        if isinstance(trial.outcome, Failure):
            if trial.config in self.timed:
                self._replace([entry for entry in self.trials if entry.config != trial.config])
            self.trials.append(trial)
            self.failures += 1
            return trial
        self.trials.append(trial)
        self.timed.add(trial.config)
        for objective, time_us in self._best_us.items():
            self._best_us[objective] = min(time_us, trial.time(objective))
        if self._time(trial) < (math.inf if self.best is None else self._time(self.best)):
            self.best = trial
        return trial

    def compare(self, baseline: Measurement | None) -> None:
        """Holds all trials to the accuracy of the vendor baseline."""
        self.baseline = baseline
        self._replace(self.trials)

    def rematch(self, trials: Iterable[Trial]) -> bool:
        """Restricts the leaders to these trials, which were timed interleaved.

        If none of them has a time, they replace the earlier ones of their configurations instead,
        and it returns False.
        """
        rematched = {trial.config: trial for trial in trials}
        if any(self._time(trial) < math.inf for trial in rematched.values()):
            self._rematched = [*rematched.values()]
            return True
        self._replace([rematched.get(trial.config, trial) for trial in self.trials])
        return False

    def disqualify(self, trial: Trial) -> None:
        """Adds the failure of a configuration that was rematched."""
        self.add(trial)
        rest = [entry for entry in self._rematched or () if entry.config != trial.config]
        self._rematched = [*rest, trial]

    @property
    def best_times(self) -> BestTimes:
        """The best hot and the best cold time of any trial."""
        return BestTimes(self._best_us[HOT], self._best_us[COLD])

    @property
    def winners(self) -> list[Config]:
        """The configurations that the record of the leaders names as its best: by the score and by
        each objective."""
        leaders = self.leaders
        entries = [entry for trial in leaders if (entry := trial.entry)]
        first = leaders[0].entry if leaders and self._score else None
        best = first, *(objective.best(entries) for objective in OBJECTIVES)
        return [*dict.fromkeys(entry.config for entry in best if entry is not None)]

    @property
    def leaders(self) -> list[Trial]:
        """At most ten of the fastest: the best of each family that is near, the best of cuBLASLt,
        and the best two by the other objective, are among them.

        After a rematch only its trials count: times taken alone and times taken interleaved cannot
        be compared.
        """
        pool = self.trials if self._rematched is None else self._rematched
        timed = sorted((trial for trial in pool if self._time(trial) < math.inf), key=self._time)
        if not timed:
            return []
        library = [trial for trial in timed if trial.config.family == cublaslt.NAME]
        leading = (*library[:OF_LIBRARY], *self._best_by_other(library)[:1])
        timed = [trial for trial in timed if trial not in library or trial in leading]
        best_of = {trial.config.family: trial for trial in reversed(timed)}
        best, second = self._time(timed[0]), self._best_by_other(timed)
        near = [trial for trial in best_of.values() if self._time(trial) <= NEAR * best]
        near += library[:1]
        within = [trial for trial in timed if self._time(trial) <= self._reach * best]
        fastest = within[: LEADERS - BY_OTHER_OBJECTIVE]
        chosen = dict.fromkeys(trial.config for trial in (*near, *fastest, *second, *within))
        by_config = {trial.config: trial for trial in timed}
        return sorted((by_config[config] for config in [*chosen][:LEADERS]), key=self._time)

    @property
    def failed(self) -> frozenset[Config]:
        """Configurations that failed, in a trial, in the rematch or later."""
        trials = (*self.trials, *(self._rematched or ()))
        return frozenset(trial.config for trial in trials if isinstance(trial.outcome, Failure))

    def failure_summary(self) -> str:
        """Why no trial has a time, in one line: counts by stage, the first failure, and the most
        accurate of what is refused as inaccurate."""
        tried = {trial.config for trial in self.trials if isinstance(trial.outcome, Failure)}
        again = [trial for trial in self._rematched or () if trial.config not in tried]
        failures = [
            (trial.config, trial.outcome)
            for trial in (*self.trials, *again)
            if isinstance(trial.outcome, Failure)
        ]
        time = self._objective.time
        if time is not HOT and any(trial.time_us < math.inf for trial in self.trials):
            return f"{time} times are not known here; minimise the hot times"
        if not failures:
            return "none was tried; allow more trials or time"
        stages = Counter(failure.stage for _, failure in failures)
        counts = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
        config, first = failures[0]
        summary = f"{counts}; such as {config}: {first.stage}: {first.reason}"
        if self.closest is None:
            return summary
        _, config, failure = self.closest
        return (
            f"{summary}; the most accurate, {config}: {failure.reason}; allow more trials or time"
        )

    def _best_by_other(self, timed: Iterable[Trial]) -> list[Trial]:
        """The fastest by the time that is not the objective."""
        second = self._objective.second
        pool = [trial for trial in timed if trial.time(second) < math.inf]
        return sorted(pool, key=lambda trial: trial.time(second))[:BY_OTHER_OBJECTIVE]

    def _time(self, trial: Trial) -> float:
        """The value to minimise: the time, or the score."""
        return trial.time(self._objective) if self._score is None else self._score(trial)

    def _checked(self, trial: Trial) -> Trial:
        if self.baseline is None or isinstance(trial.outcome, Failure):
            return trial
        outcome, error = self._check(trial.outcome, self.baseline), trial.outcome.relative_error
        if isinstance(outcome, Failure) and error is not None:
            refused = error, trial.config, outcome
            self.closest = min(self.closest or refused, refused, key=lambda entry: entry[0])
        return replace(trial, outcome=outcome)

    def _replace(self, trials: Sequence[Trial]) -> None:
        """Begins with these trials in place of all."""
        self.trials: list[Trial] = []
        self.failures = 0
        self.best = None
        self._best_us: dict[Objective, float] = dict.fromkeys(TIMES, math.inf)
        self.timed = set()
        for trial in trials:
            self.add(trial)
