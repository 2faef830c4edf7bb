"""The loop: ask, compile ahead, measure, tell, time the leaders again, record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from time import monotonic

import autotune
from autotune.candidates import candidates, diverse, transferred
from autotune.config import Config
from autotune.errors import AutotuneError
from autotune.evaluate import Compile, Prepared, Trial, ahead
from autotune.observer import Observer, Progress, Silent
from autotune.problem import Problem
from autotune.recording import Origin
from autotune.runner import Candidate, Failure, Measurement, Runner
from autotune.search import Journal, Sampler, Search, axes_of
from autotune.store import Provenance, Record, Store

# Candidates that compile while another is measured. Each is chosen without knowing the outcome
# of the others, so more would cost trials; fewer would leave the device waiting. It does not
# follow the number of cores, or one seed would find other things on other machines.
WINDOW = 12
# What is timed against each other at the end, and recorded.
LEADERS = 10
# The share of the budget that is kept for that.
RESERVE = 0.05
# First guesses: the model's, and the winners of the nearest recorded problems. The model looks at
# `SURVEY` configurations at most, or a search among a hundred thousand would begin seconds late.
SURVEY = 6000
GUESSES = 8
NEIGHBOURS = 4


@dataclass(frozen=True)
class Options:
    """How long and how to search.

    Attributes:
        trials: stop once so many configurations are evaluated, those of earlier runs included;
            None sets no limit.
        budget_s: stop after so many seconds of this run, or once the first guess works if that
            takes longer; None sets no limit. Without either limit every configuration is tried.
        seed: of the sampler.
        sampler: `tpe` learns from the times, `random` draws evenly, `exhaustive` goes from the
            best predicted to the worst.
        jobs: threads that compile; None takes one for each core.
    """

    trials: int | None = None
    budget_s: float | None = None
    seed: int = 0
    sampler: Sampler = "tpe"
    jobs: int | None = None


def tune(
    problem: Problem,
    runner: Runner,
    store: Store,
    options: Options,
    *,
    compile: Compile,
    origin: Origin,
    observer: Observer | None = None,
    family: str = "simt",
) -> Record:
    """Searches the fastest configuration of a problem and records the best.

    Every trial is in the journal of the store as soon as it is finished, and a later run with
    the same problem, device, kind of evidence, family and kernel sources goes on from there.
    Whatever ends the run early, an interrupt or the runner's failure, is passed on after what
    was measured is recorded. Candidates that crash or hang on the device are quarantined at once
    and not tried again.

    Args:
        problem: what to tune.
        runner: what measures; the caller closes it.
        store: where records, journals and the quarantine are.
        options: how long and how to search.
        compile: makes a program of a template for an architecture.
        origin: what the measurements are made with; it goes into the record.
        observer: is told about the progress.
        family: of the kernels to choose from.

    Returns:
        The record, merged with what was recorded before.

    Raises:
        AutotuneError: if there is no configuration to try, or none of those tried has a time.
        RunnerError: if the runner fails as a whole.
        CacheError: if the store cannot be written.
        ConfigError: if there is no such family.
    """
    run = _Run(problem, runner, store, options, compile, origin, observer or Silent(), family)
    try:
        run.search()
        run.rematch()
    except BaseException:
        if run.leaders:
            run.save()
        raise
    if not run.leaders:
        raise AutotuneError(run.epitaph())
    return run.save()


class _Run:
    """One call of `tune`: what was asked for, and what is known so far."""

    def __init__(
        self,
        problem: Problem,
        runner: Runner,
        store: Store,
        options: Options,
        compile: Compile,
        origin: Origin,
        observer: Observer,
        family: str,
    ) -> None:
        self._began = monotonic()
        self._problem, self._runner, self._store = problem, runner, store
        self._options, self._compile, self._origin = options, compile, origin
        self._observer = observer
        self._baseline: Measurement | None = None
        self._trials: list[Trial] = []
        self._rematched: list[Trial] | None = None
        self._failures = 0
        self._best: Trial | None = None
        survey = None if options.sampler == "exhaustive" else SURVEY
        there = candidates(problem, runner, family, self._unsafe(), survey=survey)
        axes = axes_of(there.configs)
        self._journal = Journal(self._path(), f"{family}@{origin.source}", axes)
        legal = frozenset(there.configs)
        for trial in self._journal.told:
            if trial.config in legal or isinstance(trial.outcome, Failure):
                self._note(trial)
        near = transferred(problem, store.records(runner.device), NEIGHBOURS)
        self._search = Search(
            there.configs,
            axes,
            sampler=options.sampler,
            seed=options.seed,
            guesses=(*diverse(there.configs, problem, GUESSES), *near),
            told=self._trials,
        )
        observer.started(len(there.configs), there.rejected, self._progress())

    @property
    def leaders(self) -> list[Trial]:
        """The fastest, at most ten; once they were timed again, only those."""
        # A time of its own cannot be compared with one that was taken beside others.
        pool = self._trials if self._rematched is None else self._rematched
        timed = [trial for trial in pool if isinstance(trial.outcome, Measurement)]
        return sorted(timed, key=lambda trial: trial.time_us)[:LEADERS]

    def search(self) -> None:
        """Tries configurations until a limit is reached or there are none left."""
        with closing(self._prepared(self._asked())) as prepared:
            # The others compile while the vendor library is timed.
            first = next(prepared, None)
            self._baseline = self._runner.baseline()
            self._observer.baseline(self._baseline)
            for config, candidate in chain([first] if first else [], prepared):
                if not self._going():
                    break
                self._try(config, candidate)

    def rematch(self) -> None:
        """Times the leaders against each other, so that noise does not pick the winner."""
        leaders = self.leaders
        self._observer.rematch(leaders)
        prepared = self._prepared(trial.config for trial in leaders)
        ready = [candidate for _, candidate in prepared if isinstance(candidate, Candidate)]
        outcomes = self._runner.rematch(ready) if ready else []
        # A runner may have timed the vendor library again among them.
        self._baseline = self._runner.baseline()
        self._rematched = [
            self._judged(candidate, outcome)
            for candidate, outcome in zip(ready, outcomes, strict=True)
        ]

    def save(self) -> Record:
        """Records the leaders."""
        provenance = Provenance(
            driver=self._origin.driver,
            compiler=self._origin.compiler,
            source=self._origin.source,
            autotune=autotune.__version__,
            date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
            seed=self._options.seed,
            trials=len(self._trials),
            seconds=monotonic() - self._began,
        )
        record = Record(
            problem=self._problem,
            device=self._runner.device,
            evidence=self._runner.evidence,
            entries=tuple(entry for trial in self.leaders if (entry := trial.entry)),
            baseline=self._baseline,
            provenance=provenance,
        )
        merged = self._store.save(record)
        self._observer.finished(merged, self._progress())
        return merged

    def epitaph(self) -> str:
        """Why there is nothing to record, in one line."""
        what = f"no configuration of {self._problem} has a time on {self._runner.device.name}"
        fallen = [
            (trial.config, trial.outcome)
            for trial in (*self._trials, *(self._rematched or ()))
            if isinstance(trial.outcome, Failure)
        ]
        if not fallen:
            return f"{what}: none was tried; allow more trials or time"
        stages = Counter(failure.stage for _, failure in fallen)
        counts = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
        config, failure = fallen[0]
        return f"{what}: {counts}; such as {config}: {failure.stage}: {failure.reason}"

    def _asked(self) -> Iterator[Config]:
        """What the search proposes, as long as the limits allow."""
        limit, asked = self._options.trials, len(self._trials)
        while self._going() and (limit is None or asked < limit):
            config = self._search.ask()
            if config is None:
                return
            asked += 1
            yield config

    def _prepared(self, configs: Iterable[Config]) -> Prepared:
        # A runner that knows its configurations needs no compiler: looking ahead would only cost.
        window = WINDOW if self._runner.known() is None else 1
        jobs = self._options.jobs
        return ahead(configs, self._problem, self._runner, self._compile, window=window, jobs=jobs)

    def _try(self, config: Config, candidate: Candidate | Failure) -> None:
        if isinstance(candidate, Failure):
            trial = Trial(config, candidate)
        else:
            best_us = None if self._best is None else self._best.time_us
            trial = self._judged(candidate, self._runner.measure(candidate, best_us))
        self._journal.add(trial)
        self._search.tell(trial)
        self._note(trial)
        self._observer.trial(trial, self._progress())

    def _judged(self, candidate: Candidate, outcome: Measurement | Failure) -> Trial:
        """The trial; what endangers the device is quarantined before anything else happens."""
        device = self._runner.device
        if (
            isinstance(outcome, Failure)
            and outcome.stage in ("crash", "timeout")
            and self._runner.evidence == "measured"
        ):
            reason = f"{self._problem}: {outcome.stage}: {outcome.reason}"
            self._store.quarantine(device, self._key(candidate.config), reason)
        return Trial.of(candidate.config, candidate.resources, outcome, device)

    def _note(self, trial: Trial) -> None:
        self._trials.append(trial)
        if isinstance(trial.outcome, Failure):
            self._failures += 1
        elif self._best is None or trial.time_us < self._best.time_us:
            self._best = trial

    def _unsafe(self) -> Callable[[Config], bool]:
        """Whether a configuration is in quarantine, which holds for the device itself alone."""
        if self._runner.evidence != "measured":
            return lambda _: False
        keys = self._store.quarantined(self._runner.device)
        return lambda config: self._key(config) in keys

    def _key(self, config: Config) -> str:
        # Other kernel sources may have mended it.
        return f"{config}@{self._origin.source}"

    def _progress(self) -> Progress:
        seconds = monotonic() - self._began
        return Progress(len(self._trials), self._failures, self._best, seconds)

    def _going(self) -> bool:
        """Whether there is time; the first guesses are tried until one works, however little."""
        budget = self._options.budget_s
        if budget is None or monotonic() - self._began < budget * (1 - RESERVE):
            return True
        return self._best is None and len(self._trials) < GUESSES

    def _path(self) -> Path:
        name = f"{self._problem.slug}.{self._runner.evidence}.log"
        return self._store.root / "studies" / self._runner.device.slug / name
