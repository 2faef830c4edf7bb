"""Proposes the next configuration of a run: its race, its search, the claims of processes.

A run begins with a race of the most promising configurations, and a search follows. Both propose
from what is in the trial log, in which every process claims what it tries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from autotune.families import cublaslt
from autotune.families.config import Config
from autotune.lookup.promising import FOLLOWING, Contenders
from autotune.measure.measurement import Failure
from autotune.measure.recording import Origin
from autotune.measure.runner import Runner
from autotune.model.model_error import Sample
from autotune.records import Store, TuningRecord
from autotune.tuning.options import Search
from autotune.tuning.search.axes import Axis
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trial_log import TrialLog, place, studies_of, study_of
from autotune.tuning.trials import Leaderboard, Observer, Trial
from autotune.tuning.tunable import Tunable

# The search stops once the untried configurations may be expected to improve the best time by less
# than ENOUGH, LOOKS times in a row; the check runs every EVERY trials. docs/search.md measures the
# cost.
ENOUGH, LOOKS, EVERY = 0.0075, 3, 5


class Patience:
    """Follows the improvement that a search expects of the configurations it has not tried.

    Attributes:
        gain: the expected improvement at the last check, 0.01 for 1 %; None while unknown.
    """

    def __init__(self) -> None:
        self.gain: float | None = None
        self._low, self._looked = 0, 0

    def due(self, trials: int) -> bool:
        """Whether the next check is due at this number of trials."""
        return not self.over and trials >= self._looked + EVERY

    def look(self, trials: int, gain: float | None) -> None:
        """Records the expected gain at this number of trials."""
        self._looked, self.gain = trials, gain
        self._low = 0 if gain is None or gain >= ENOUGH else self._low + 1

    @property
    def over(self) -> bool:
        """Whether the search should stop."""
        return self._low >= LOOKS


class Race:
    """Two rounds of configurations. Half of the first round decides the second, which can then
    compile while the rest is measured. Others take the places of those that are too inaccurate.

    Attributes:
        considered: all candidates of the race.
        first, second: the rounds; `second` is empty until it is chosen.
        most: how many configurations both rounds have at most, without inaccurate ones.

    Args:
        contenders: the candidates; None for no race.
    """

    def __init__(self, contenders: Contenders | None) -> None:
        self._contenders = contenders
        self.considered = contenders.configs if contenders else ()
        self.first = contenders.first if contenders else ()
        self.second: tuple[Config, ...] = ()
        self.most = min(len(self.considered), len(self.first) + FOLLOWING)
        self._refused: frozenset[Config] = frozenset()
        self._chosen = False

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configurations of the rounds chosen so far."""
        return self.first + self.second

    def refuse(self, places: Iterable[int]) -> None:
        """Takes the candidates at these places out, as too inaccurate."""
        self._refused |= {self.considered[place] for place in places}

    def choose(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """Chooses the rest of the second round by the trials so far, earlier runs included, and
        returns the second round."""
        self._chosen, raced = True, self._contenders
        if raced is None:
            return ()
        tried, inaccurate = set(self.configs), set(self._refused)
        for trial in trials:
            if trial.config.family == cublaslt.NAME:
                continue  # they take no place of the race
            tried.add(trial.config)
            if isinstance(trial.outcome, Failure) and trial.outcome.stage == "accuracy":
                inaccurate.add(trial.config)
        if (lacking := self.most - len(tried - inaccurate)) > 0:
            timed = [
                Sample(trial.config, trial.resources, time_us)
                for trial in trials
                if trial.config in self.first and trial.resources
                if (time_us := trial.time(raced.objective)) < math.inf
            ]
            self.second += raced.following(timed, tried | inaccurate, lacking)
        return self.second

    def choose_early(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """The second round if these trials are the first to include half of the first round."""
        if self._chosen:
            return ()
        tried = sum(trial.config in self.first for trial in trials)
        return self.choose(trials) if 2 * tried >= len(self.first) else ()


@dataclass
class Proposals:
    """Proposes the next configuration until a limit is hit, skipping those another process has
    claimed, and passes the trials of other processes on to the search.

    Attributes:
        search: proposes configurations and learns from trials.
        log: log in which configurations are claimed.
        leaderboard: the trials so far.
        observer: receives the event that ends the search early.
        options: limit the number of trials.
        time_left: whether there is time for another trial.
        library: configurations of a vendor's library, proposed in turns with those of the search:
            they run while kernels compile.
    """

    search: Proposer
    log: TrialLog
    leaderboard: Leaderboard
    observer: Observer
    options: Search
    time_left: Callable[[], bool]
    library: list[Config] = field(default_factory=list)
    _of_library: set[Config] = field(default_factory=set)
    _librarys_turn: bool = False
    _patience: Patience = field(default_factory=Patience)
    _claimed_elsewhere: frozenset[Config] = frozenset()
    _limit: int | None = field(init=False, default=None)
    _exhausted: bool = False

    def __post_init__(self) -> None:
        if self.options.trials is not None:
            # The study also has trials that no longer hold; they do not count.
            told = {trial.config for trial in self.log.told}
            void = told - {trial.config for trial in self.leaderboard.trials}
            self._limit = self.options.trials + len(void)

    def asked(self) -> Iterator[Config]:
        """The search's proposals, within the limits."""
        while self.time_left() and not self._full and not self._enough():
            config = self._claimed(self._next)
            if config is None:
                return
            yield config

    def tell(self, trial: Trial) -> None:
        """Finishes a proposed configuration; the search does not learn from those of a library."""
        if trial.config in self._of_library:
            self._of_library.remove(trial.config)
        else:
            self.search.tell(trial)

    def reopened(self) -> bool:
        """Whether there is room for trials again, because other processes ended without using their
        share."""
        self._share()
        limited = self.options.trials is not None
        return limited and not self._full and not self._exhausted and self.time_left()

    def spare(self, fits: Callable[[Config], bool]) -> Config | None:
        """A configuration for a device that waits for the compiler, within the limits."""
        if self.options.trials is not None or not self.time_left() or self._enough():
            return None
        return self._claimed(lambda: self.search.spare(fits))

    def release(self) -> None:
        """Gives up the proposals that were not tried, since the time was over before."""
        self.log.release((*self.search.withdraw(), *self._of_library))
        self._of_library.clear()

    def _next(self) -> Config | None:
        """The next configuration, of the search and of the library in turns."""
        turn, self._librarys_turn = self._librarys_turn, not self._librarys_turn
        if not (turn and self.library) and (config := self.search.ask()) is not None:
            return config
        if not self.library:
            return None
        self._of_library.add(config := self.library.pop(0))
        return config

    def _claimed(self, propose: Callable[[], Config | None]) -> Config | None:
        """The first proposal that no other process has claimed; it is claimed now."""
        self._share()
        refused: set[Config] = set()
        while not self._full:
            config = propose()
            if config is None:
                self._exhausted = True
                return None
            if self.log.claim(config, self._limit):
                return config
            if config in self._of_library:
                self._of_library.remove(config)
                continue
            self.search.give_up(config)
            refused.add(config)
            self._share(refused)
        return None

    def _share(self, refused: AbstractSet[Config] = frozenset()) -> None:
        """Learns which trials other processes have finished and which they have claimed.

        The search does not propose `refused` configurations either.
        """
        news = self.log.news()
        for trial in news.finished:
            self.search.learn(self.leaderboard.add(trial))
        self.search.exclude(news.claimed | refused)
        self._claimed_elsewhere = news.claimed

    @property
    def _full(self) -> bool:
        """Whether the limit is reached by finished trials and running ones, here and elsewhere."""
        if self.options.trials is None:
            return False
        running = self.search.running + len(self._of_library) + len(self._claimed_elsewhere)
        return len(self.leaderboard.trials) + running >= self.options.trials

    def _enough(self) -> bool:
        """Whether the search expects too little of further trials."""
        count = len(self.leaderboard.trials)
        if self.options.trials is None and self._patience.due(count):
            self._patience.look(count, self.search.expected_gain())
            if self._patience.over and self._patience.gain is not None:
                self.observer.enough(self._patience.gain)
        return self._patience.over


def open_log(
    tunable: Tunable[TuningRecord],
    runner: Runner,
    store: Store,
    origin: Origin,
    axes: tuple[Axis, ...],
    storage: str | None,
) -> TrialLog:
    """The trial log of a tunable's study in the store, shared through an Optuna storage if one is
    given."""
    study = study_of(tunable.kinds, origin)
    folder, stem = studies_of(store.root, runner.device, runner.evidence, tunable.slug)
    path = place(folder, stem, study)
    if storage is None:
        return TrialLog(path, study)
    from autotune.tuning.search.storage import SharedLog

    return SharedLog(path, study, storage, f"{folder.name}/{stem}/{study}", axes)
