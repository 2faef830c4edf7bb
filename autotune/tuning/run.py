"""A call of `tune`: what it tries, in which order, and what it keeps."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from time import monotonic
from typing import Generic, TypeVar

from autotune.errors import BudgetError, CacheError, UnsavedError
from autotune.families.config import Config
from autotune.records import Store, TuningRecord
from autotune.runners.base import Candidate, Failure, Measurement, Runner
from autotune.runners.recording import Origin
from autotune.tuning import objective
from autotune.tuning.accuracy import Accuracy, extended
from autotune.tuning.device_pool import DevicePool
from autotune.tuning.evaluate import Compile, Trial
from autotune.tuning.events import Observer, Progress
from autotune.tuning.leaderboard import Leaderboard
from autotune.tuning.metering import measured, rematched
from autotune.tuning.options import Search, enough
from autotune.tuning.pipeline import Compiler, Prepared, ahead
from autotune.tuning.proposals import Proposals
from autotune.tuning.quarantine import Quarantine
from autotune.tuning.resume import open_log, still_hold
from autotune.tuning.saving import record_of, saved
from autotune.tuning.search import axes_of
from autotune.tuning.searches import listed, race_of, race_search, refuse_inaccurate, search_of
from autotune.tuning.tunable import Tunable

RESERVE = 0.05
"""Share of the time kept for the rematch."""

R = TypeVar("R", bound=TuningRecord)


class Run(Generic[R]):
    """One call of `tune` and its trials; `settled` once the record is saved or cannot be."""

    def __init__(
        self,
        tunable: Tunable[R],
        runners: Sequence[Runner],
        store: Store,
        options: Search,
        compile: Compile,
        origin: Origin,
        observer: Observer,
    ) -> None:
        self._began, self._over, self.settled = monotonic(), False, False
        self._deadline = _last_trial(options, self._began)
        objective.check(tunable, runners[0], options)
        self._tunable, self._runner, self._store = tunable, runners[0], store
        self._options, self._origin, self._observer = options, origin, observer
        self.compiler = Compiler(compile, tunable.plan, runners[0], options.jobs)
        self.accuracy, self._live = Accuracy(tunable.judged), runners[0].evidence == "measured"
        # Without noise in the outcomes, a seed repeats its trials only if none runs ahead.
        self._pool = DevicePool(runners, self._measured, ahead=self._live)
        kind = self._runner.device, self._runner.evidence
        self._quarantine = Quarantine(store, *kind, origin.source)
        context = self._runner, store, options, self._quarantine.barred()
        self._race = race_of(tunable, *context)
        self._racing = bool(self._race.configs)
        self._require_time()
        # While candidates are listed, which may take a second.
        self.compiler.begin_first(self._race.configs[: options.trials])
        self._candidates, self._guesses = listed(tunable, *context, self._race)
        configs = self._candidates.configs
        self._axes = axes_of(configs)
        where = store, origin, self._axes, options.storage
        self.log = open_log(tunable, self._runner, *where)
        self.leaderboard = Leaderboard(options.objective, options.score, options.reach)
        for trial in still_hold(self.log.told, tunable, configs):
            self.leaderboard.add(trial)
        self._extended_at = -1
        self._proposals = self._proposing(options)
        count = self._race.most if options.quick else len(configs)
        observer.started(count, self._candidates.rejected, self._progress())

    def search(self) -> None:
        """Tries proposals until a limit is reached, none is left, or none is worth a trial.

        The vendor baseline is known afterwards. If it refuses all that was measured, the limit on
        trials is raised.
        """
        if self._runner.baseline_ready:
            self._compare(self._runner.baseline())
        with closing(self._pool):
            self._search()
            if self._goes_on():
                self._search()
            # The search does not wait for the vendor's library; what follows does.
            if self.accuracy.baseline is None and (vendor := self._runner.baseline()) is not None:
                self._compare(vendor)
            while self._proposals.reopened() or self._extended():
                self._search()

    def _goes_on(self) -> bool:
        """Prepares what follows the first round of a race: in a quick run the second round, else
        the search, which guesses the second round first. Returns whether anything follows."""
        if not self._racing or not self._time_left():
            return False
        if self._options.quick:
            return self._races_on()
        second = self._race.choose(self.leaderboard.trials)
        self._guesses = tuple(dict.fromkeys((*second, *self._guesses)))
        self._racing = False
        self._proposals = self._proposing(self._options)
        return True

    def _races_on(self) -> bool:
        """Prepares what is left to try of a race; returns whether there is anything."""
        self._race.choose(self.leaderboard.trials)
        if self._race.configs == self._proposals.search.configs:
            return False
        self._proposals = self._proposing(self._options)
        return True

    def _search(self) -> None:
        """Tries proposals, and ends with all trials in the log and judged."""
        asked, limit = self._proposals.asked(), self._deadline
        with closing(self._prepared(asked, ordered=not self._live, deadline=limit)) as prepared:
            for trial in self._pool.trials(prepared, self._time_left):
                self._tell(trial)
                if self.accuracy.baseline is None and self._pool.baseline is not None:
                    self._compare(self._pool.baseline)
        self._proposals.release()
        with suppress(CacheError):  # closing the log raises it again
            self.log.flush()
        self.leaderboard.rejudge(self.accuracy.of)  # also the trials of other processes

    def rematch(self) -> None:
        """Times the leaders interleaved, so that noise does not pick the winner.

        If none of them passes, the next ones follow.
        """
        while leaders := self.leaderboard.leaders:
            self._observer.rematch(leaders)
            prepared = [*self._prepared((trial.config for trial in leaders), ordered=True)]
            ready = [candidate for _, candidate in prepared if isinstance(candidate, Candidate)]
            outcomes = rematched(self._runner, ready, self._options) if ready else []
            self.accuracy.baseline = self._runner.baseline()
            failed = [Trial(config, why) for config, why in prepared if isinstance(why, Failure)]
            timed = [self._trial(*pair) for pair in zip(ready, outcomes, strict=True)]
            if self.leaderboard.rematch([*timed, *failed]):
                self._examine({candidate.config: candidate for candidate in ready})
                self._over = True
                return

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

    def save(self, earlier: BaseException | None = None) -> R:
        """Records the leaders; `earlier` is the error that ended the run, if any."""
        record = record_of(
            *(self._tunable, self._runner, self._origin, self.leaderboard, self.accuracy.baseline),
            seed=self._options.seed,
            seconds=monotonic() - self._began,
            interrupted=not self._over,
        )
        try:
            merged = saved(self._store, record, self.leaderboard, earlier)
        except UnsavedError:
            self.settled = True
            raise
        self.settled = True
        self._observer.finished(merged, self._progress())
        return merged

    def _extended(self) -> bool:
        """Lets others take the places of what is too inaccurate in a race; in a search, raises the
        limit on trials if all that was measured is refused."""
        if self._racing:
            return self._time_left() and self._races_on()
        count = len(self.leaderboard.trials)
        refused = self.accuracy.closest is not None and not self.leaderboard.leaders
        options = extended(self._options, count)
        if not refused or options is None or count == self._extended_at or not self._time_left():
            return False
        # The search learnt from trials before the baseline was known, which is wrong: start again.
        self._extended_at, self._proposals = count, self._proposing(options)
        return True

    def _proposing(self, options: Search) -> Proposals:
        board = self.leaderboard
        if self._racing:
            search = race_search(self._race.configs, board.trials)
        else:
            space = self._candidates, self._guesses, self._axes
            task = self._tunable, self._runner.device, self._options
            search = search_of(*task, *space, board.trials)
        refuse_inaccurate(search, self._tunable, self.accuracy.baseline)
        return Proposals(search, self.log, board, self._observer, options, self._time_left)

    def _tell(self, trial: Trial) -> None:
        if trial.resources is None:  # it failed before a device, whose thread writes the others
            self._write(trial)
        trial = self.accuracy.of(trial)
        self.leaderboard.add(trial)
        self._proposals.search.tell(trial)
        self.log.check()  # observers hear only of trials that a kill cannot lose
        self._observer.trial(trial, self._progress())
        self.compiler.begin_first(self._race.choose_early(self.leaderboard.trials))

    def _compare(self, baseline: Measurement | None) -> None:
        """Holds all trials to the accuracy of the vendor baseline, which was just timed."""
        self.accuracy.baseline = baseline
        self._observer.baseline(baseline)
        self.leaderboard.rejudge(self.accuracy.of)
        refuse_inaccurate(self._proposals.search, self._tunable, baseline)
        if baseline is not None:
            self._race.refuse(self._tunable.inaccurate(self._race.considered, baseline))

    def _prepared(
        self, configs: Iterable[Config], *, ordered: bool, deadline: float = math.inf
    ) -> Prepared:
        spare = self._proposals.spare
        return ahead(configs, self.compiler, ordered=ordered, spare=spare, deadline=deadline)

    def _measured(self, runner: Runner, candidate: Candidate) -> Trial:
        """Measures a candidate; returns its trial, which is in the log."""
        # A slow candidate may score well.
        best = self.leaderboard.best_times if self._options.score is None else None
        trial = self._trial(candidate, measured(runner, candidate, best, self._options))
        self._write(trial)
        return trial

    def _write(self, trial: Trial) -> None:
        """Writes the trial to the log, unless a later run should repeat it."""
        outcome = trial.outcome
        if not isinstance(outcome, Failure) or self._tunable.stands(outcome.stage):
            self.log.finish(trial)

    def _trial(self, candidate: Candidate, outcome: Measurement | Failure) -> Trial:
        """The trial; a candidate that endangers the device is quarantined first of all."""
        if isinstance(outcome, Failure):
            self._quarantine.note(self._tunable, candidate.config, outcome)
        return Trial.of(candidate, outcome, self._runner.device)

    def _progress(self) -> Progress:
        board, seconds = self.leaderboard, monotonic() - self._began
        busy = self._pool.busy_s / (self._pool.size * seconds) if seconds else 0.0
        return Progress(len(board.trials), board.failures, board.best, seconds, busy)

    def _time_left(self) -> bool:
        """Whether there is time for another trial."""
        return monotonic() < self._deadline

    @property
    def cut_short(self) -> bool:
        """Whether the time was over before the first trial."""
        return not self.leaderboard.trials and not self._time_left()

    def _require_time(self) -> None:
        if not self._time_left():
            raise self.too_late()

    def too_late(self) -> BudgetError:
        """The error of a run whose time was over before its first trial."""
        return BudgetError(
            f"the time was over before a configuration of {self._tunable} was timed; give "
            f"{enough(self._options.seconds):g} s or more"
        )


def _last_trial(options: Search, began: float) -> float:
    """Until when a run that began then may try configurations, by `time.monotonic`."""
    ends = options.begun(began).deadline
    return math.inf if ends is None else ends - RESERVE * (ends - began)
