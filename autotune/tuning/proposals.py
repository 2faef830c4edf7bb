"""What a tuning run tries next, as long as the limits allow and nobody else tries it."""

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
    """A search whose proposals are claimed in the journal, and which learns there from others.

    Attributes:
        search: proposes, and is told.
        journal: where configurations are claimed.
        standings: the trials so far.
        observer: is told when the search ends because the rest is not worth it.
        options: limit the number of trials.
        going: whether there is time.
    """

    search: Search
    journal: Journal
    standings: Leaderboard
    observer: Observer
    options: Options
    going: Callable[[], bool]
    _patience: Patience = field(default_factory=Patience)

    def asked(self) -> Iterator[Config]:
        """What the search proposes, as long as the limits allow."""
        limit, asked = self.options.trials, len(self.standings.trials)
        while self.going() and (limit is None or asked < limit) and not self._enough():
            config = self._claimed(self.search.ask)
            if config is None:
                return
            asked += 1
            yield config

    def spare(self, fits: Callable[[Config], bool]) -> Config | None:
        """What a device can do while it waits for the compiler, if the limits allow."""
        if self.options.trials is not None or not self.going() or self._enough():
            return None
        return self._claimed(lambda: self.search.spare(fits))

    def _claimed(self, propose: Callable[[], Config | None]) -> Config | None:
        """What is proposed and not another process's."""
        self._hear()
        while (config := propose()) is not None and not self.journal.claim(config):
            self.search.give_up(config)
        return config

    def _hear(self) -> None:
        """Learns what other processes have found out and are trying."""
        news = self.journal.news()
        for trial in news.finished:
            self.standings.note(trial)
            self.search.learn(trial)
        self.search.exclude(news.claimed)

    def _enough(self) -> bool:
        """Whether further trials are not worth it, by what the search expects of them."""
        known = len(self.standings.trials)
        if self.options.trials is None and self._patience.due(known):
            self._patience.look(known, self.search.outlook())
            if self._patience.over and self._patience.outlook is not None:
                self.observer.enough(self._patience.outlook)
        return self._patience.over
