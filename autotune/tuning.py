"""The loop: ask, compile ahead, measure, tell, time the leaders again, record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from time import monotonic
from typing import Generic, TypeVar

import autotune
from autotune.candidates import GUESSES
from autotune.config import Config
from autotune.errors import AutotuneError
from autotune.evaluate import Compile, Trial
from autotune.observer import Observer, Progress, Silent
from autotune.pipeline import Prepared, Ready, ahead, cores
from autotune.recording import Origin
from autotune.runner import Candidate, Failure, Measurement, Runner
from autotune.search import Journal, Sampler, Search, axes_of
from autotune.standings import Standings
from autotune.store import Findings, Provenance, Store
from autotune.subject import Subject

R = TypeVar("R", bound=Findings)

# Candidates under way besides those that compile: ready before the device is. All of them are
# chosen without knowing the outcomes of the others, so more would cost trials.
READY = 4
# Under way where outcomes have no noise. It does not follow the number of cores, or one seed would
# find other things on other machines.
WINDOW = 12
# The share of the budget that is kept for timing the leaders against each other.
RESERVE = 0.05
# What may happen to the next candidate, or to the device, as well.
DANGERS = ("crash", "timeout")
# The model looks at so many configurations of a family at most, or a search among a hundred
# thousand would begin seconds late.
SURVEY = 6000


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
        jobs: threads that compile; None takes one for each core but one.
    """

    trials: int | None = None
    budget_s: float | None = None
    seed: int = 0
    sampler: Sampler = "tpe"
    jobs: int | None = None


def tune(
    subject: Subject[R],
    runner: Runner,
    store: Store,
    options: Options,
    *,
    compile: Compile,
    origin: Origin,
    observer: Observer | None = None,
) -> R:
    """Searches the fastest configuration of a subject and records the best.

    Every trial is in the journal of the store as soon as it is finished, and a later run with
    the same subject, device, kind of evidence and kernel sources goes on from there.
    Whatever ends the run early, an interrupt or the runner's failure, is passed on after what
    was measured is recorded. Candidates that crash or hang on the device are quarantined at once
    and not tried again.

    Args:
        subject: what to tune.
        runner: what measures; the caller closes it.
        store: where records, journals and the quarantine are.
        options: how long and how to search.
        compile: makes a program of a template for an architecture.
        origin: what the measurements are made with; it goes into the record.
        observer: is told about the progress.

    Returns:
        The record, merged with what was recorded before.

    Raises:
        AutotuneError: if there is no configuration to try, or none of those tried has a time.
        RunnerError: if the runner fails as a whole.
        CacheError: if the store cannot be written.
    """
    run = _Run(subject, runner, store, options, compile, origin, observer or Silent())
    try:
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
        subject: Subject[R],
        runner: Runner,
        store: Store,
        options: Options,
        compile: Compile,
        origin: Origin,
        observer: Observer,
    ) -> None:
        self._began = monotonic()
        self._subject, self._runner, self._store = subject, runner, store
        self._options, self._compile, self._origin = options, compile, origin
        self._observer = observer
        self._baseline: Measurement | None = None
        # Elsewhere the same seed tries the same; noise in the outcomes would prevent it anyway.
        self._live = runner.evidence == "measured"
        self._busy_s = 0.0
        self.standings = Standings()
        survey = None if options.sampler == "exhaustive" else SURVEY
        there = subject.candidates(runner, self._unsafe(), survey=survey)
        configs = there.configs
        axes = axes_of(configs)
        path = store.root / "studies" / runner.device.slug / f"{subject.slug}.{runner.evidence}.log"
        self._journal = Journal(path, f"{subject.kinds}@{origin.source}", axes)
        legal = frozenset(configs)
        for trial in self._journal.told:
            known = trial.outcome
            if subject.stands(known.stage) if isinstance(known, Failure) else trial.config in legal:
                self.standings.note(trial)
        self._search = Search(
            configs,
            axes,
            sampler=options.sampler,
            seed=options.seed,
            guesses=subject.guesses(there, runner.device, store),
            told=self.standings.trials,
        )
        observer.started(len(configs), there.rejected, self._progress())

    def search(self) -> None:
        """Tries configurations until a limit is reached or there are none left."""
        with (
            ThreadPoolExecutor(1, "measure") as device,
            closing(self._prepared(self._asked(), ordered=not self._live)) as prepared,
        ):
            # The others compile while the vendor library is timed.
            first = next(prepared, None)
            self._baseline = self._runner.baseline()
            self._observer.baseline(self._baseline)
            for trial in self._trials(chain([first] if first else [], prepared), device):
                self._search.tell(trial)
                self._observer.trial(trial, self._progress())

    def rematch(self) -> None:
        """Times the leaders against each other, so that noise does not pick the winner."""
        leaders = self.standings.leaders
        self._observer.rematch(leaders)
        prepared = self._prepared((trial.config for trial in leaders), ordered=True)
        ready = [candidate for _, candidate in prepared if isinstance(candidate, Candidate)]
        outcomes = self._runner.rematch(ready) if ready else []
        # A runner may have timed the vendor library again among them.
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
            autotune=autotune.__version__,
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

    def _asked(self) -> Iterator[Config]:
        """What the search proposes, as long as the limits allow."""
        limit, asked = self._options.trials, len(self.standings.trials)
        while self._going() and (limit is None or asked < limit):
            config = self._search.ask()
            if config is None:
                return
            asked += 1
            yield config

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
        )

    def _trials(self, prepared: Iterable[Ready], device: Executor) -> Iterator[Trial]:
        """Finished trials; the next is on the device already when one comes out."""
        running: Future[Trial] | None = None
        for config, candidate in prepared:
            done = [self._noted(running)] if running else []
            running = device.submit(self._try, config, candidate) if self._going() else None
            yield from done
            if running is None:
                return
            if not self._live:
                yield self._noted(running)
                running = None
        if running:
            yield self._noted(running)

    def _noted(self, running: Future[Trial]) -> Trial:
        trial = running.result()
        self.standings.note(trial)
        return trial

    def _try(self, config: Config, candidate: Candidate | Failure) -> Trial:
        """Measures; the trial is in the journal as soon as it is finished."""
        if isinstance(candidate, Failure):
            trial = Trial(config, candidate)
        else:
            best, began = self.standings.best, monotonic()
            outcome = self._runner.measure(candidate, None if best is None else best.time_us)
            self._busy_s += monotonic() - began
            trial = self._judged(candidate, outcome)
        self._journal.add(trial)
        return trial

    def _judged(self, candidate: Candidate, outcome: Measurement | Failure) -> Trial:
        """The trial; what endangers the device is quarantined before anything else happens."""
        device = self._runner.device
        if self._live and isinstance(outcome, Failure) and outcome.stage in DANGERS:
            reason = f"{self._subject}: {outcome.stage}: {outcome.reason}"
            self._store.quarantine(device, self._key(candidate.config), reason)
        return Trial.of(candidate.config, candidate.resources, outcome, device)

    def _unsafe(self) -> Callable[[Config], bool]:
        """Whether a configuration is in quarantine, which holds for the device itself alone."""
        if not self._live:
            return lambda _: False
        # Of other kernel sources nothing is barred: as a rule no configuration has to be spelt out.
        source = self._key("")
        keys = self._store.quarantined(self._runner.device)
        barred = {key.removesuffix(source) for key in keys if key.endswith(source)}
        return (lambda config: str(config) in barred) if barred else (lambda _: False)

    def _key(self, config: Config | str) -> str:
        # Other kernel sources may have mended it.
        return f"{config}@{self._origin.source}"

    def _progress(self) -> Progress:
        known, seconds = self.standings, monotonic() - self._began
        return Progress(len(known.trials), known.failures, known.best, seconds, self._busy_s)

    def _going(self) -> bool:
        """Whether there is time; the first guesses are tried until one works, however little."""
        budget = self._options.budget_s
        if budget is None or monotonic() - self._began < budget * (1 - RESERVE):
            return True
        return self.standings.best is None and len(self.standings.trials) < GUESSES
