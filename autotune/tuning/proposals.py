"""The proposals of a search, claimed in the journal that other processes share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from autotune.families.config import Config
from autotune.tuning.events import Observer
from autotune.tuning.leaderboard import Leaderboard
from autotune.tuning.options import Options
from autotune.tuning.search import Journal, Patience, Search


@dataclass
class Proposals:
    """Proposes the next configuration until a limit is hit, skipping those another process has
    claimed, and passes the trials of other processes on to the search.

    Attributes:
        search: proposes configurations and learns from trials.
        journal: where configurations are claimed.
        leaderboard: the trials so far.
        observer: receives the event that ends the search early.
        options: limit the number of trials.
        time_left: whether there is time for another trial.
    """

    search: Search
    journal: Journal
    leaderboard: Leaderboard
    observer: Observer
    options: Options
    time_left: Callable[[], bool]
    _patience: Patience = field(default_factory=Patience)

    def asked(self) -> Iterator[Config]:
        """The search's proposals, within the limits."""
        limit, count = self.options.trials, len(self.leaderboard.trials)
        while self.time_left() and (limit is None or count < limit) and not self._enough():
            config = self._claimed(self.search.ask)
            if config is None:
                return
            count += 1
            yield config

    def spare(self, fits: Callable[[Config], bool]) -> Config | None:
        """A configuration for a device that waits for the compiler, within the limits."""
        if self.options.trials is not None or not self.time_left() or self._enough():
            return None
        return self._claimed(lambda: self.search.spare(fits))

    def _claimed(self, propose: Callable[[], Config | None]) -> Config | None:
        """The first proposal that no other process has claimed; it is claimed now."""
        self._share()
        while (config := propose()) is not None and not self.journal.claim(config):
            self.search.give_up(config)
        return config

    def _share(self) -> None:
        """Learns which trials other processes have finished and which they have claimed."""
        news = self.journal.news()
        for trial in news.finished:
            self.leaderboard.add(trial)
            self.search.learn(trial)
        self.search.exclude(news.claimed)

    def _enough(self) -> bool:
        """Whether the search expects too little of further trials."""
        count = len(self.leaderboard.trials)
        if self.options.trials is None and self._patience.due(count):
            self._patience.look(count, self.search.outlook())
            if self._patience.over and self._patience.outlook is not None:
                self.observer.enough(self._patience.outlook)
        return self._patience.over
