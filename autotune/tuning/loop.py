"""The loop: ask, compile ahead, measure, tell, time the leaders again, record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timezone
from time import monotonic
from typing import Generic, TypeVar

from threadpoolctl import threadpool_limits

from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.records import Provenance, Store, TuningRecord
from autotune.runners.base import Candidate, Failure, Measurement, Objective, Runner
from autotune.runners.recording import Origin
from autotune.tuning.device_pool import DevicePool
from autotune.tuning.evaluate import Compile, Trial
from autotune.tuning.events import Observer, Progress, Silent
from autotune.tuning.guesses import GUESSES
from autotune.tuning.leaderboard import Leaderboard
from autotune.tuning.options import Options
from autotune.tuning.pipeline import Prepared, ahead, cores
from autotune.tuning.proposals import Proposals
from autotune.tuning.quarantine import Quarantine
from autotune.tuning.search import Journal, Search, axes_of
from autotune.tuning.tunable import Tunable
from autotune.version import __version__

__all__ = ["Options", "tune"]

# Candidates under way besides those that compile: ready before the device is. All of them are
# chosen without knowing the outcomes of the others, so more would cost trials.
READY = 4
# Under way where outcomes have no noise. It does not follow the number of cores, or one seed would
# find other things on other machines.
WINDOW = 12
# The share of the budget that is kept for timing the leaders against each other.
RESERVE = 0.05
# The model looks at so many configurations of a family at most, or a search among a hundred
# thousand would begin seconds late.
SURVEY = 6000

R = TypeVar("R", bound=TuningRecord)


def tune(
    subject: Tunable[R],
    runner: Runner,
    store: Store,
    options: Options,
    *,
    compile: Compile,
    origin: Origin,
    observer: Observer | None = None,
    others: Sequence[Runner] = (),
) -> R:
    """Searches the fastest configuration of a subject and records the best.

    Every trial is on its way to the journal as soon as it is finished, and a later run with the
    same subject, device, kind of evidence, kinds of configurations, sources, compiler and driver
    goes on from there. Several processes may do so at once: none tries what another one does.
    Whatever ends the run early, an interrupt or the runner's failure, is passed on after what was
    measured is recorded. Candidates that crash or hang on the device are quarantined at once and
    not tried again.

    Args:
        subject: what to tune.
        runner: what measures; the caller closes it.
        store: where records, journals and the quarantine are.
        options: how long and how to search.
        compile: makes a program of a template for an architecture.
        origin: what the measurements are made with; it goes into the record.
        observer: is told about the progress.
        others: of further devices of the same model, which share the work.

    Returns:
        The record, merged with what was recorded before.

    Raises:
        AutotuneError: if there is no configuration to try, or none of those tried has a time.
        RunnerError: if a runner fails as a whole.
        CacheError: if the store cannot be written.
    """
    runners = (runner, *others)
    run = _Run(subject, runners, store, options, compile, origin, observer or Silent())
    try:
        # The threads of a matrix library would only get in the way of those that compile.
        with closing(run.journal), threadpool_limits(1, "blas"):
            run.search()
            run.rematch()
    except BaseException:
        if run.standings.leaders:
            run.save()
        raise
    if not run.standings.leaders:
        what = f"no configuration of {subject} has a time on {runner.device.name}"
        raise AutotuneError(f"{what}: {run.standings.epitaph()}")
    return run.save()


class _Run(Generic[R]):
    """One call of `tune`: what was asked for, and what is known so far."""

    def __init__(
        self,
        subject: Tunable[R],
        runners: Sequence[Runner],
        store: Store,
        options: Options,
        compile: Compile,
        origin: Origin,
        observer: Observer,
    ) -> None:
        self._began = monotonic()
        if options.objective == "cold" and runners[0].evidence == "predicted":
            raise AutotuneError(
                f"{subject}: cold times are not predicted; give a GPU or a recording as the device"
            )
        self._subject, self._runner, self._store = subject, runners[0], store
        self._options, self._compile, self._origin = options, compile, origin
        self._observer = observer
        self._baseline: Measurement | None = None
        # Elsewhere the same seed tries the same; noise in the outcomes would prevent it anyway.
        self._live = self._runner.evidence == "measured"
        self._crew = DevicePool(runners, self._try, ahead=self._live)
        self.standings = Leaderboard(options.objective)
        device = self._runner.device
        survey = None if options.sampler == "exhaustive" else SURVEY
        self._quarantine = Quarantine(store, device, self._runner.evidence, origin.source)
        there = subject.candidates(self._runner, self._quarantine.barred(), survey=survey)
        configs = there.configs
        axes = axes_of(configs)
        path = store.root / "studies" / device.slug / f"{subject.slug}.{self._runner.evidence}.log"
        study = study_of(subject.kinds, origin)
        if options.storage is not None:
            study = f"{device.slug}/{path.stem}/{study}"
        self.journal = Journal(options.storage or path, study, axes)
        legal = frozenset(configs)
        for trial in self.journal.told:
            known = trial.outcome
            if subject.stands(known.stage) if isinstance(known, Failure) else trial.config in legal:
                self.standings.note(trial)
        search = Search(
            configs,
            axes,
            sampler=options.sampler,
            seed=options.seed,
            guesses=subject.guesses(there, device, store),
            told=self.standings.trials,
            describe=subject.describe(device),
            value=lambda trial: _worth(trial, options.objective),
        )
        self._choice = Proposals(
            search, self.journal, self.standings, observer, options, self._going
        )
        observer.started(len(configs), there.rejected, self._progress())

    def search(self) -> None:
        """Tries configurations until a limit is reached, there are none left, or none that is
        left is worth it."""
        if self._runner.baseline_ready:
            self._compare(self._runner.baseline())
        with (
            closing(self._crew),
            closing(self._prepared(self._choice.asked(), ordered=not self._live)) as prepared,
        ):
            for trial in self._crew.trials(prepared, self._going):
                self._tell(trial)
                if self._baseline is None and self._crew.baseline is not None:
                    self._compare(self._crew.baseline)

    def rematch(self) -> None:
        """Times the leaders against each other, so that noise does not pick the winner."""
        leaders = self.standings.leaders
        self._observer.rematch(leaders)
        prepared = self._prepared((trial.config for trial in leaders), ordered=True)
        ready = [candidate for _, candidate in prepared if isinstance(candidate, Candidate)]
        if self._baseline is None and (baseline := self._runner.baseline()) is not None:
            self._compare(baseline)  # it was not to be waited for until now
        outcomes = self._runner.rematch(ready) if ready else []
        self._baseline = self._runner.baseline()
        self.standings.rematch(
            self._judged(candidate, outcome)
            for candidate, outcome in zip(ready, outcomes, strict=True)
        )

    def save(self) -> R:
        """Records the leaders."""
        provenance = Provenance(
            driver=self._origin.driver,
            compiler=self._origin.compiler,
            source=self._origin.source,
            autotune=__version__,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seed=self._options.seed,
            trials=len(self.standings.trials),
            seconds=monotonic() - self._began,
        )
        record = self._subject.record(
            device=self._runner.device,
            evidence=self._runner.evidence,
            entries=[entry for trial in self.standings.leaders if (entry := trial.entry)],
            baseline=self._baseline,
            provenance=provenance,
        )
        merged = self._store.save(record)
        self._observer.finished(merged, self._progress())
        return merged

    def _tell(self, trial: Trial) -> None:
        if trial.resources is None:  # it never came to a device, where trials are written
            self._keep(trial)
        trial = self._accurate(trial)
        self.standings.note(trial)
        self._choice.search.tell(trial)
        self._observer.trial(trial, self._progress())

    def _compare(self, baseline: Measurement | None) -> None:
        """The vendor library was timed: its accuracy is what candidates are held to."""
        self._baseline = baseline
        self._observer.baseline(baseline)
        self.standings.judge(self._accurate)

    def _accurate(self, trial: Trial) -> Trial:
        """The trial, a failure if its result is less accurate than the vendor's allows."""
        if self._baseline is None or isinstance(trial.outcome, Failure):
            return trial
        return replace(trial, outcome=self._subject.judged(trial.outcome, self._baseline))

    def _prepared(self, configs: Iterable[Config], *, ordered: bool) -> Prepared:
        jobs = self._options.jobs or cores()
        under_way = WINDOW if ordered else jobs + READY
        # A runner that knows its configurations needs no compiler: looking ahead would only cost.
        window = under_way if self._runner.known() is None else 1
        return ahead(
            configs,
            self._subject.plan,
            self._runner,
            self._compile,
            window=window,
            ordered=ordered,
            jobs=jobs,
            spare=self._choice.spare,
        )

    def _try(self, runner: Runner, candidate: Candidate) -> Trial:
        """Measures; the trial is on its way to the journal as soon as it is finished."""
        best, objective = self.standings.best, self._options.objective
        best_us = None if best is None else best.time(objective)
        outcome = runner.measure(candidate, best_us, objective)
        trial = self._judged(candidate, outcome)
        self._keep(trial)
        return trial

    def _keep(self, trial: Trial) -> None:
        """Has the trial written, unless a later run is to try it again."""
        outcome = trial.outcome
        if not isinstance(outcome, Failure) or self._subject.stands(outcome.stage):
            self.journal.finish(trial)

    def _judged(self, candidate: Candidate, outcome: Measurement | Failure) -> Trial:
        """The trial; what endangers the device is quarantined before anything else happens."""
        if isinstance(outcome, Failure):
            self._quarantine.note(self._subject, candidate.config, outcome)
        return Trial.of(candidate.config, candidate.resources, outcome, self._runner.device)

    def _progress(self) -> Progress:
        known, seconds = self.standings, monotonic() - self._began
        share = self._crew.busy_s / (self._crew.size * seconds) if seconds else 0.0
        return Progress(len(known.trials), known.failures, known.best, seconds, share)

    def _going(self) -> bool:
        """Whether there is time; the first guesses are tried until one works, however little."""
        budget = self._options.budget_s
        if budget is None or monotonic() - self._began < budget * (1 - RESERVE):
            return True
        return self.standings.best is None and len(self.standings.trials) < GUESSES


def study_of(kinds: str, origin: Origin) -> str:
    """The name of the trials that can be compared: of kernels of these kinds and sources, made by
    one compiler and run by one driver."""
    tools = "".join(f"@{tool}" for tool in (origin.compiler, origin.driver) if tool)
    return f"{kinds}@{origin.source}{tools}"


def _worth(trial: Trial, objective: Objective) -> float:
    """What is to become small; of one that was too slow hot to be run cold, its hot time."""
    time_us = trial.time(objective)
    return time_us if time_us < math.inf else trial.time_us
