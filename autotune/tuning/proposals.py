"""The proposals of a search, claimed in the trial log that other processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from autotune.families.config import Config
from autotune.tuning.events import Observer
from autotune.tuning.leaderboard import Leaderboard
from autotune.tuning.options import Search
from autotune.tuning.search import Patience, Proposer, TrialLog


@dataclass
class Proposals:
    """Proposes the next configuration until a limit is hit, skipping those another process has
    claimed, and passes the trials of other processes on to the search.

    Attributes:
        search: proposes configurations and learns from trials.
        log: where configurations are claimed.
        leaderboard: the trials so far.
        observer: receives the event that ends the search early.
        options: limit the number of trials.
        time_left: whether there is time for another trial.
    """

    search: Proposer
    log: TrialLog
    leaderboard: Leaderboard
    observer: Observer
    options: Search
    time_left: Callable[[], bool]
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
            config = self._claimed(self.search.ask)
            if config is None:
                return
            yield config

    def reopened(self) -> bool:
        """Whether there is room for trials again: other processes ended without using theirs."""
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
        self.log.release(self.search.withdraw())

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
            self.search.give_up(config)
            refused.add(config)
            self._share(refused)
        return None

    def _share(self, refused: AbstractSet[Config] = frozenset()) -> None:
        """Learns which trials other processes have finished and which they have claimed.

        Those `refused` just now are not proposed either.
        """
        news = self.log.news()
        for trial in news.finished:
            self.leaderboard.add(trial)
            self.search.learn(trial)
        self.search.exclude(news.claimed | refused)
        self._claimed_elsewhere = news.claimed

    @property
    def _full(self) -> bool:
        """Whether the limit is reached by finished trials and running ones, here and elsewhere."""
        if self.options.trials is None:
            return False
        running = self.search.running + len(self._claimed_elsewhere)
        return len(self.leaderboard.trials) + running >= self.options.trials

    def _enough(self) -> bool:
        """Whether the search expects too little of further trials."""
        count = len(self.leaderboard.trials)
        if self.options.trials is None and self._patience.due(count):
            self._patience.look(count, self.search.outlook())
            if self._patience.over and self._patience.outlook is not None:
                self.observer.enough(self._patience.outlook)
        return self._patience.over
