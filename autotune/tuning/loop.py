"""The tuning loop: propose, compile ahead, measure, learn, rematch, examine, record.

`tune` is the whole of it. A `Run` lists the candidates and reads the log of earlier trials. Its
`search` tries what `proposals` proposes, first a race and then a search, while `pipeline` compiles
ahead and measures. Its `rematch` times the leaders of the `leaderboard` again, and `save` records
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import datetime, timezone
from time import monotonic
from typing import Generic, TypeVar

from threadpoolctl import threadpool_limits

from autotune.errors import AutotuneError, BudgetError, CacheError, MissingError, UnsavedError
from autotune.families import cublaslt
from autotune.families.config import Config
from autotune.families.config_table import places_of
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT
from autotune.measure.recording import Origin
from autotune.measure.runner import Candidate, Punctual, Runner
from autotune.records import Provenance, Store, TuningRecord
from autotune.tuning.options import Budget, Search, enough
from autotune.tuning.pipeline import Compile, Compiler, DevicePool, ahead
from autotune.tuning.proposals import Proposals, Race, open_log
from autotune.tuning.search.axes import axes_of
from autotune.tuning.search.proposer import START, Proposer
from autotune.tuning.trials import Leaderboard, Observer, Progress, Quarantine, Trial
from autotune.tuning.tunable import RANKED, SearchResult, Tunable
from autotune.version import __version__

__all__ = ["Search", "tune"]

EXTRA, STEP = 100, 10
"""Most trials beyond the limit while every measured one is refused as inaccurate, and the trials by
which the limit rises at once."""

SHARE_OF_LIBRARY = 4
"""At most one trial in four is an algorithm of a library, where trials are limited."""

R = TypeVar("R", bound=TuningRecord)

Outcome = Measurement | Failure


def tune(
    tunable: Tunable[R],
    runner: Runner,
    store: Store,
    options: Search,
    *,
    compile: Compile,
    origin: Origin,
    observer: Observer | None = None,
    further: Sequence[Runner] = (),
    begin: Callable[[], None] | None = None,
) -> R:
    """Searches the fastest configuration and records the best ten.

    Every trial is in the log as soon as it is finished. A later run of the same tunable,
    device, kind of evidence, kinds of configurations, sources, compiler and driver continues from
    there. Several processes may tune at once: none tries what another has claimed. If the run ends
    early, by an interrupt or a runner's failure, the exception is passed on after what was measured
    is recorded. Candidates that crash or hang on the device are quarantined at once and not tried
    again.

    Args:
        tunable: the GEMM or user kernel to tune.
        runner: measures; the caller closes it.
        store: holds records, trial logs and the quarantine.
        options: limits and sampler of the search.
        compile: makes a program of a template for an architecture.
        origin: compiler, driver and sources of the measurements, for the record.
        observer: receives the events of the run.
        further: runners of more devices of the same model, which share the work.
        begin: called before anything is measured, while the first configurations compile.

    Returns:
        The record, merged with what was recorded before.

    Raises:
        AutotuneError: if there is no configuration to try, or none of those tried has a time.
        BudgetError: if the time was over before one was tried.
        RunnerError: if a runner fails as a whole.
        CacheError: if the store cannot be written; an `UnsavedError` if results are affected.
    """
    runners, observer, run = (runner, *further), observer or Observer(), None
    try:
        with ExitStack() as opened:
            run = Run(tunable, runners, store, options, compile, origin, observer, opened, begin)
            # A matrix library's threads would compete with the compiler's.
            opened.enter_context(threadpool_limits(1, "blas"))
            run.search()
            run.rematch()
        if not run.leaderboard.leaders:
            raise run.failure()
        return run.save()
    except BaseException as error:
        if run is not None and run.leaderboard.leaders and not run.settled:
            run.save(error)
        raise


class Run(Generic[R]):
    """One call of `tune`: a race, a search, the rematch of the leaders, the record.

    Attributes:
        leaderboard: all trials.
        settled: whether the record is saved or cannot be.

    The arguments are those of `tune`; `opened` closes the compiler and the log at its end.
    """

    def __init__(
        self,
        tunable: Tunable[R],
        runners: Sequence[Runner],
        store: Store,
        options: Search,
        compile: Compile,
        origin: Origin,
        observer: Observer,
        opened: ExitStack,
        begin: Callable[[], None] | None = None,
    ) -> None:
        self._begin = begin
        self._began, self._over, self.settled = monotonic(), False, False
        self._budget, runner = _budget(tunable, runners, options, self._began), runners[0]
        _check_objective(tunable, runner, options)
        self._tunable, self._runner, self._store = tunable, runner, store
        self._options, self._origin, self._observer = options, origin, observer
        compiler = Compiler(compile, tunable.plan, runner, options.jobs)
        self._compiler = opened.enter_context(closing(compiler))
        self._live = runner.evidence == "measured"
        # Without noise in the outcomes, a seed repeats its trials only if none runs ahead.
        self._pool = DevicePool(runners, self._measured, ahead=self._live)
        self._quarantine = Quarantine(store, runner.device, runner.evidence, origin.source)
        barred, asked = self._quarantine.barred(), (runner.device, store, options.objective)

        # The race compiles while candidates are listed: that may take a second.
        racing = options.quick or (options.guided and runner.known() is None)
        contenders = tunable.contenders(*asked) if racing else None
        self._enter_race(Race(contenders and contenders.without(barred)))
        ranked = None if options.sampling == "exhaustive" else RANKED
        listed = tunable.candidates(runner, barred, ranked=ranked)
        candidates = listed.extended_by(self._race.considered)
        self._configs, self._axes = candidates.configs, axes_of(candidates.configs)
        self._guesses = tunable.guesses(candidates, *asked) if options.guided else ()
        most = None if options.trials is None else options.trials // SHARE_OF_LIBRARY
        library = [config for config in tunable.library(runner) if config not in barred]
        self._library = tuple(library[:most])

        # The trials so far, and what to try next.
        log = open_log(tunable, runner, store, origin, self._axes, options.storage)
        self._log = opened.enter_context(closing(log))
        ranking = options.objective, options.score, options.reach
        self.leaderboard = Leaderboard(*ranking, tunable.checked)
        for trial in self._standing():
            self.leaderboard.add(trial)
        self._extended_at = -1
        self._propose(options)
        count = self._race.most if options.quick else len(self._configs)
        observer.started(count + len(self._library), candidates.rejected, self._progress())

    def search(self) -> None:
        """Tries proposals until a limit is reached, none is left, or none is worth a trial.

        The vendor baseline is known afterwards. If it refuses all that was measured, the limit on
        trials is raised.
        """
        board = self.leaderboard
        if self._runner.baseline_ready:
            self._compare(self._runner.baseline())
        with closing(self._pool):
            self._evaluate()  # the first round of a race, if there is one
            if self._racing and self._second_round():
                self._evaluate()
            # The search does not wait for the vendor's library; what follows does.
            if board.baseline is None and (vendor := self._runner.baseline()) is not None:
                self._compare(vendor)
            while self._goes_on():
                self._evaluate()

    def rematch(self) -> None:
        """Times the leaders interleaved, so that noise does not pick the winner, and examines the
        winners. If no leader passes, the next ones follow."""
        self._ready()
        while leaders := self._affordable(self.leaderboard.leaders):
            self._observer.rematch(leaders)
            configs = [trial.config for trial in leaders]
            prepared = [*ahead(configs, self._compiler, ordered=True)]
            ready = [candidate for _, candidate in prepared if isinstance(candidate, Candidate)]
            outcomes = self._runner.rematch(ready) if ready else []
            if self._options.meters:
                outcomes = _metered(self._runner, ready, outcomes)
            self.leaderboard.baseline = self._runner.baseline()
            failed = [Trial(config, why) for config, why in prepared if isinstance(why, Failure)]
            if self.leaderboard.rematch([*map(self._trial, ready, outcomes), *failed]):
                self._examine({candidate.config: candidate for candidate in ready})
                self._over = True
                return

    def save(self, earlier: BaseException | None = None) -> R:
        """Saves the record of the leaders, merged with what was recorded before.

        Configurations that failed leave the earlier record; so do timed ones if that record has
        another driver or compiler.

        Args:
            earlier: the error that ended the run, if any; an error of the log is part of the
                message.

        Raises:
            UnsavedError: if it cannot be saved; the record is kept elsewhere or is in the error.
        """
        record, board = self._record(), self.leaderboard
        try:
            merged = self._store.save(record, board.failed, board.timed)
        except CacheError as error:
            unsaved = _unsaved(record, error, earlier)
            self.settled = True
            raise unsaved from error
        self.settled = True
        self._observer.finished(merged, self._progress())
        return merged

    def failure(self) -> AutotuneError:
        """The error of a run in which nothing has a time."""
        if not self.leaderboard.trials and not self._time_left():
            return self._too_late()
        return AutotuneError(
            f"no configuration of {self._tunable} has a time on {self._runner.device.name}: "
            f"{self.leaderboard.failure_summary()}"
        )

    # Propose: a race of promising configurations, then the search.

    def _propose(self, options: Search) -> None:
        """Begins with new proposals, which know all trials so far."""
        told = self.leaderboard.trials
        modelled = self._configs[0].family != cublaslt.NAME
        if self._racing or not modelled:
            configs = self._race.configs if self._racing else self._configs
            search = Proposer(configs, sampler="exhaustive", told=told)
        else:
            search = Proposer(
                self._configs,
                self._axes,
                sampler=options.sampling,
                seed=options.seed,
                guesses=self._guesses,
                told=told,
                describe=self._tunable.describe(self._runner.device),
                value=options.score or self._value,
            )
        limits = options, self._time_left
        tried = {trial.config for trial in told}
        library = [config for config in self._library if config not in tried]
        self._proposals = Proposals(
            search, self._log, self.leaderboard, self._observer, *limits, library
        )
        self._refuse_inaccurate()

    def _enter_race(self, race: Race) -> None:
        """Begins to compile the first round of a race, which is empty where there is none."""
        self._race, self._racing = race, bool(race.configs)
        if not self._time_left():
            raise self._too_late()
        self._compiler.begin_first(race.configs[: self._options.trials])

    def _second_round(self) -> bool:
        """Prepares the second round of a race: a quick run tries it alone, and a search guesses it
        first. Returns whether there is anything to try."""
        if not self._time_left():
            return False
        second = self._race.choose(self.leaderboard.trials)
        if not self._options.quick:
            self._guesses, self._racing = tuple(dict.fromkeys((*second, *self._guesses))), False
        elif self._race.configs == self._proposals.search.configs:
            return False
        self._propose(self._options)
        return True

    def _goes_on(self) -> bool:
        """Prepares further trials: places that other processes left, others for what is too
        inaccurate in a race, or a search beyond its limit while all that was measured is refused.
        Returns whether there are any."""
        if self._proposals.reopened():
            return True
        if self._racing:
            return self._second_round()
        board, options = self.leaderboard, self._options
        if board.closest is None or board.leaders or not self._time_left():
            return False
        count = len(board.trials)
        if options.trials is not None:
            options = replace(options, trials=min(count + STEP, options.trials + EXTRA))
        if count in (self._extended_at, options.trials):
            return False
        # The search learnt from trials before the baseline was known, which is wrong: start again.
        self._extended_at = count
        self._propose(options)
        return True

    def _value(self, trial: Trial) -> float:
        """Microseconds to minimise; the hot time of a trial too slow hot to be run cold."""
        time_us = trial.time(self._options.objective)
        return time_us if time_us < math.inf else trial.time_us

    def _standing(self) -> Iterator[Trial]:
        """The trials of earlier runs whose outcome would be the same today."""
        legal = places_of(self._configs) if self._log.told else {}
        for trial in self._log.told:
            if (
                self._tunable.stands(trial.outcome.stage)
                if isinstance(trial.outcome, Failure)
                else trial.config in legal or trial.config in self._library
            ):
                yield trial

    # Compile ahead, measure and learn.

    def _ready(self) -> None:
        """Calls the caller's `begin`, once."""
        begin, self._begin = self._begin, None
        if begin is not None:
            begin()

    def _evaluate(self) -> None:
        """Tries the proposals, and ends with all trials in the log and checked."""
        proposals, board = self._proposals, self.leaderboard
        prepared = ahead(
            proposals.asked(),
            self._compiler,
            ordered=not self._live,
            # Without guesses and outcomes, proposals are blind.
            first=None if self._guesses or board.trials else START,
            spare=proposals.spare,
            deadline=self._budget.search_end,
            begun=self._ready,
        )
        with closing(prepared):
            for trial in self._pool.trials(prepared, self._time_left):
                self._learn(trial)
                if board.baseline is None and self._pool.baseline is not None:
                    self._compare(self._pool.baseline)
        proposals.release()
        with suppress(CacheError):  # closing the log raises it again
            self._log.flush()

    def _measured(self, runner: Runner, candidate: Candidate) -> Trial | None:
        """Measures a candidate in its device's thread; returns its trial, which is in the log. None
        if the end of the run stopped it."""
        began = monotonic()
        options = self._options
        # A slow candidate may score well.
        best = self.leaderboard.best_times if options.score is None else None
        outcome = runner.measure(candidate, best, options.objective)
        if options.meters_trials:
            (outcome,) = _metered(runner, [candidate], [outcome])
        if not isinstance(outcome, Failure):
            self._budget.note(candidate.config, monotonic() - began)
        elif (
            outcome.stage == "timeout" and self._budget.punctual and monotonic() >= self._budget.end
        ):
            return None
        trial = self._trial(candidate, outcome)
        self._write(trial)
        return trial

    def _learn(self, trial: Trial) -> None:
        """Passes a finished trial on to the leaderboard, the search and the observer."""
        if trial.resources is None:  # it failed before a device, whose thread writes the others
            self._write(trial)
        trial = self.leaderboard.add(trial)
        if self.leaderboard.best is not None:
            self._budget.keep(self.leaderboard.best.config)
        self._proposals.tell(trial)
        self._log.check()  # observers hear only of trials that a kill cannot lose
        self._observer.trial(trial, self._progress())
        self._compiler.begin_first(self._race.choose_early(self.leaderboard.trials))

    def _trial(self, candidate: Candidate, outcome: Outcome) -> Trial:
        """The trial; a candidate that endangers the device is quarantined first of all."""
        if isinstance(outcome, Failure):
            self._quarantine.note(self._tunable, candidate.config, outcome)
        return Trial.of(candidate, outcome, self._runner.device)

    def _write(self, trial: Trial) -> None:
        """Writes the trial to the log, unless a later run should repeat it."""
        outcome = trial.outcome
        if not isinstance(outcome, Failure) or self._tunable.stands(outcome.stage):
            self._log.finish(trial)

    def _compare(self, baseline: Measurement | None) -> None:
        """Holds all trials to the accuracy of the vendor baseline, which was just timed."""
        self.leaderboard.compare(baseline)
        self._observer.baseline(baseline)
        self._refuse_inaccurate()

    def _refuse_inaccurate(self) -> None:
        """Spares the run what is predicted to be less accurate than the vendor baseline allows."""
        if (baseline := self.leaderboard.baseline) is not None:
            inaccurate, search = self._tunable.inaccurate, self._proposals.search
            search.refuse(inaccurate(search.configs, baseline))
            self._race.refuse(inaccurate(self._race.considered, baseline))

    # Examine and record.

    def _examine(self, candidates: Mapping[Config, Candidate]) -> None:
        """Examines the winners; where one fails, the next best is examined."""
        passed: set[Config] = set()
        while pending := [config for config in self.leaderboard.winners if config not in passed]:
            candidate = candidates[pending[0]]
            failure = self._runner.examine(candidate)
            if failure is None:
                passed.add(candidate.config)
                continue
            trial = self._trial(candidate, failure)
            self._write(trial)
            self.leaderboard.disqualify(trial)

    def _record(self) -> R:
        """The record of the leaders, marked as interrupted if the run is not over."""
        board, origin, runner = self.leaderboard, self._origin, self._runner
        provenance = provenance_of(
            origin,
            runner,
            self._began,
            seed=self._options.seed,
            trials=len(board.trials),
            interrupted=not self._over,
            quick=self._options.quick,
        )
        entries = tuple(entry for trial in board.leaders if (entry := trial.entry))
        made = SearchResult(runner.device, runner.evidence, entries, board.baseline, provenance)
        return self._tunable.record(made)

    # Time.

    def _progress(self) -> Progress:
        board, seconds = self.leaderboard, monotonic() - self._began
        busy = self._pool.busy_s / (self._pool.size * seconds) if seconds else 0.0
        return Progress(len(board.trials), board.failures, board.best, seconds, busy)

    def _time_left(self) -> bool:
        """Whether there is time for another trial."""
        return monotonic() < self._budget.search_end

    def _affordable(self, leaders: Sequence[Trial]) -> Sequence[Trial]:
        """The leaders that the last round has time for; without any, their times stand."""
        count = self._budget.affordable([leader.config for leader in leaders], monotonic())
        self._over = self._over or not count
        return leaders[:count]

    def _too_late(self) -> BudgetError:
        """The error of a run whose time was over before its first trial."""
        return BudgetError(
            f"the time was over before a configuration of {self._tunable} was timed; give "
            f"{enough(self._options.seconds):g} s or more"
        )


def provenance_of(
    origin: Origin,
    runner: Runner,
    began: float,
    *,
    seed: int,
    trials: int,
    interrupted: bool,
    quick: bool,
) -> Provenance:
    """The provenance of a record that is saved now, of a run that began at `began`."""
    return Provenance(
        driver=origin.driver,
        compiler=origin.compiler,
        source=origin.source,
        autotune=__version__,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seed=seed,
        trials=trials,
        seconds=monotonic() - began,
        interrupted=interrupted,
        quick=quick,
        baseline_fault=runner.baseline_fault,
    )


def _budget(
    tunable: Tunable[TuningRecord], runners: Sequence[Runner], options: Search, began: float
) -> Budget:
    """The time of a run that began at `began`, which its runners learn if it is punctual."""
    deadline = options.begun(began).deadline
    # Energies take seconds each, however long the search was.
    punctual = tunable.punctual and not options.meters
    budget = Budget(began, math.inf if deadline is None else deadline, punctual)
    for runner in runners:
        if punctual and isinstance(runner, Punctual):
            runner.until(budget.end)
    return budget


def _check_objective(tunable: object, runner: Runner, options: Search) -> None:
    """Refuses an objective that the runner has no times or no energies for.

    Raises:
        AutotuneError: if cold times are wanted of predictions.
        MissingError: if energies are wanted and there are none.
    """
    time = options.objective.time
    if time is not HOT and runner.evidence == "predicted":
        raise AutotuneError(
            f"{tunable}: {time} times are not predicted; give a GPU or a recording as the device"
        )
    if options.meters and (fault := runner.energy_fault()) is not None:
        raise MissingError(f"{tunable}: {fault}")


def _metered(
    runner: Runner, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """The outcomes with energies; a candidate that fails now is a failure."""
    pairs = zip(candidates, outcomes, strict=True)
    timed = [candidate for candidate, outcome in pairs if isinstance(outcome, Measurement)]
    energies = iter(runner.energies(timed) if timed else ())

    def metered(outcome: Outcome) -> Outcome:
        if isinstance(outcome, Failure):
            return outcome
        energy = next(energies)
        return energy if isinstance(energy, Failure) else replace(outcome, energy=energy)

    return [*map(metered, outcomes)]


def _unsaved(record: TuningRecord, why: CacheError, earlier: BaseException | None) -> UnsavedError:
    """The error of a record that cannot be saved, with the record."""
    message = f"{why}; the record is in no file"
    if isinstance(earlier, CacheError):
        message = f"{earlier}; the record cannot be saved either: {message}"
    return UnsavedError(
        message,
        record=record,
        trials=earlier.trials if isinstance(earlier, UnsavedError) else (),
    )
