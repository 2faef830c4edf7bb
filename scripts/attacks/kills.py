"""SIGKILL at random moments of a tuning process: no told trial is lost, the next run goes on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

from attacks import tuners
from attacks.forks import Fork
from attacks.outcome import Outcome
from attacks.tuners import Place
from autotune.tuning.options import Sampler, Search

KILLS_A_STUDY = 10
TRIALS_A_RUN = 20
SECONDS = 60.0
# A trial takes a few milliseconds, the start a few tenths of a second.
MOMENT_S, START_S = 0.02, 0.4


@dataclass
class Study:
    """A study whose tuners are killed one after the other.

    Attributes:
        place: where its files are.
        told: how often each trial was told, over all runs; without those that were lost.
        lost: trials that were told and then missing.
        kills: killed processes; one that ends first does not count.
        broken: broken promises.
    """

    place: Place
    random: Random
    label: str
    told: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    kills: int = 0
    broken: list[str] = field(default_factory=list)

    def attack(self, kills: int) -> None:
        """Kills tuners, then lets the last one finish."""
        attempts = 0
        while self.kills < kills and attempts < 3 * kills:
            attempts += 1
            self._run(kill=True)
            self._check()
        self._run(kill=False)
        if not self._check().record:
            self._fault("the last run left no record")
        repeated = [config for config, times in self.told.items() if times > 1]
        if repeated:
            self._fault(f"{len(repeated)} told trials were measured again: {repeated[0]}")

    def _run(self, *, kill: bool) -> None:
        """A tuner that resumes the study; it is killed or runs to its end."""
        limit = len(self.told) + TRIALS_A_RUN
        sampler: Sampler = "gp" if self.random.random() < 0.1 else "random"
        options = Search(trials=limit, seed=self.random.randrange(1000), sampler=sampler)
        fork = tuners.started(self.place, options)
        messages = self._until_killed(fork) if kill else []
        messages += fork.messages(SECONDS)
        fork.kill()
        self._note(messages, fork, killed=kill)

    def _until_killed(self, fork: Fork) -> list[Any]:
        """The messages of a tuner until it is killed: between two trials, or at its start."""
        wanted = self.random.randrange(-4, TRIALS_A_RUN + 3)
        messages: list[Any] = []
        deadline = monotonic() + SECONDS
        while len(messages) < wanted and (message := fork.line(deadline)) is not None:
            messages.append(message)
        sleep(self.random.uniform(0, MOMENT_S if wanted > 0 else START_S))
        fork.kill()
        return messages

    def _note(self, messages: list[Any], fork: Fork, *, killed: bool) -> None:
        status = fork.ended()
        if status == -9 and killed:
            self.kills += 1
        elif status != 0:
            self._fault(f"a run ended with {status}")
        earlier = len(self.told)
        for message in messages:
            if "told" in message:
                self.told[message["told"]] += 1
            if "raised" in message:
                self._fault(f"raised {message['raised']}")
            if message.get("started", earlier) < earlier:
                self._fault(f"resumed with {message['started']} of {earlier} told trials")

    def _check(self) -> tuners.Found:
        found = tuners.found(self.place)
        for config in self.told.keys() - {*found.trials}:
            self._fault(f"lost 1 of {len(self.told)} told trials: {config}")
            self.lost.add(config)
            del self.told[config]
        for fault in found.faults:
            self._fault(fault)
        return found

    def _fault(self, text: str) -> None:
        self.broken.append(f"{self.label}, after {self.kills} kills: {text}")


def run(count: int, seed: int, folder: Path) -> Outcome:
    """Kills `count` tuners: two of three studies are in a log alone, every third in SQLite
    too."""
    tuners.warm(folder / "warm")
    kills, told, lost, runs = 0, 0, 0, 0
    broken: list[str] = []
    while kills < count:
        root = folder / f"study-{runs}"
        root.mkdir(parents=True)
        sqlite = runs % 3 == 2
        place = Place(root / "cache", f"sqlite:///{root}/study.db" if sqlite else None)
        kind = "SQLite" if sqlite else "log"
        study = Study(place, Random(f"{seed} {runs}"), f"seed {seed}, study {runs} ({kind})")
        study.attack(min(KILLS_A_STUDY, count - kills))
        runs, kills, lost = runs + 1, kills + study.kills, lost + len(study.lost)
        told += len(study.told) + len(study.lost)
        broken += study.broken
        if not study.kills:
            broken.append(f"{study.label}: no process could be killed in time")
            break
    counts = {"kills": kills, "studies": runs, "told trials": told, "lost trials": lost}
    return Outcome(counts, broken=tuple(broken))
