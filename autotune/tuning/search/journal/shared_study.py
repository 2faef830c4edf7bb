"""One study in a storage that several processes work on: claims, results, and what others did."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from time import time
from typing import NamedTuple

from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import trials
from autotune.tuning.search.journal.trials import RESULT, SINCE, Attributes
from autotune.tuning.search.studies import study_of

FINISHED, RUNNING = (TrialState.COMPLETE, TrialState.PRUNED), (TrialState.RUNNING,)


class Peer(NamedTuple):
    """Another process: what it says of itself, and when it last claimed or finished."""

    owner: Attributes
    active: float

    @property
    def gone(self) -> bool:
        return trials.abandoned(self.owner, self.active)


class SharedStudy:
    """Claims and finishes trials, and hears of the other processes'.

    The storage's errors pass through, and the call may be repeated: a claimed trial is not finished
    twice, even if it was written although an error was raised.

    Attributes:
        claimed: configurations that other processes, still alive, are trying.
    """

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        space: Mapping[str, BaseDistribution],
        owner: Attributes,
    ) -> None:
        study_of(name, storage)
        self._storage, self._space, self._owner = storage, space, owner
        self._study = storage.get_study_id_from_name(name)
        self._mine: dict[Config, int] = {}  # the trial ids of this process's claims
        self._unsure: set[Config] = set()  # an error was raised when they were written
        self._unchecked: set[Config] = set()  # claims that were written but not compared yet
        self._peers: dict[str, Peer] = {}  # by the runs they name
        self._open: dict[int, Config] = {}  # the trial numbers of the others' claims
        self._done: set[Config] = set()
        self._news: deque[Trial] = deque()
        self._seen = 0
        self.claimed: frozenset[Config] = frozenset()
        self._look(strict=True)
        for trial in self._running():
            if {"run", SINCE} <= trial.user_attrs.keys():
                self._settled(trial.number)

    def news(self) -> list[Trial]:
        """Trials of others since the last call, in the order they began; at first all trials."""
        return [self._news.popleft() for _ in range(len(self._news))]

    def look(self) -> None:
        """Reads what others have written; trials of other programs are passed over."""
        self._look(strict=False)

    @property
    def shared(self) -> bool:
        """Whether another process is alive that has worked on the study, as far as was read."""
        return not all(peer.gone for peer in [*self._peers.values()])

    def claim(self, config: Config, limit: int | None = None) -> bool:
        """Whether the configuration is this process's to try.

        Each process writes its claim and then looks; the first claim in the storage counts.

        Args:
            config: the configuration.
            limit: of the study's configurations, finished or claimed. Claims count in the order in
                which they were written, so that all processes together do not exceed it.
        """
        claim = self._mine.get(config)
        if claim is not None and config not in self._unchecked:
            return True
        if claim is None:
            if config in self._done or config in self.claimed:
                return False
            claim = self._written(config)
        if claim is None:
            claim = self._add(trials.stored(config, self._space, self._owner, None), config)
        self._mine[config] = claim
        self._unchecked.add(config)
        self.look()
        own = self._storage.get_trial_number_from_id(claim)
        refusal = self._refusal(config, own, limit)
        if refusal is not None:
            self._drop(claim, refusal)
            del self._mine[config]
        self._unchecked.discard(config)
        return refusal is None

    def finish(self, trial: Trial, kept: Callable[[], None] = lambda: None) -> None:
        """Writes the result of a configuration, claimed or not.

        Calls `kept` as soon as a kill would not lose it, before it is safe from a power cut.
        """
        claim = self._mine.get(trial.config)
        if claim is None:
            claim = self._written(trial.config)
        if claim is None or not self._end(claim, trial, kept):
            stored = trials.stored(trial.config, self._space, self._owner, trial)
            self._add(stored, trial.config)
        self._mine.pop(trial.config, None)
        self._done.add(trial.config)

    def restore(self, trial: Trial) -> None:
        """Writes a trial, as news, unless its configuration has one already."""
        if trial.config not in self._done:
            self.finish(trial)
            self._news.append(trial)

    def give_up(self, config: Config) -> None:
        """Gives up a claim of this process, if there is one."""
        claim = self._mine.pop(config, None)
        if claim is None:
            claim = self._written(config)
        if claim is not None:
            self._drop(claim, "released")

    def release(self) -> None:
        """Gives up all claims of this process, also those written although an error was raised."""
        for trial in self._running():
            if trial.user_attrs.get("run") == self._owner["run"]:
                self._drop(self._id(trial.number), "released")

    def _look(self, *, strict: bool) -> None:
        # Listing 1,000 trials takes 0.1 ms; only those that are new or were open are read.
        listed = self._storage.get_all_trials(self._study, deepcopy=False)
        fresh = [listed[number] for number in self._open] + listed[self._seen :]
        seen, self._open = self._seen, {}
        for trial in fresh:
            with suppress(*(() if strict else (KeyError, TypeError, ValueError))):
                self._read(trial, seen)
        self._seen = len(listed)
        runs = {number: str(listed[number].user_attrs["run"]) for number in self._open}
        gone = {run for run in {*runs.values()} if self._peers[run].gone}
        self.claimed = frozenset(
            config for number, config in self._open.items() if runs[number] not in gone
        )

    def _read(self, trial: FrozenTrial, seen: int) -> None:
        """Reads a trial; those from number `seen` on were not read before."""
        attributes = trial.user_attrs
        run = attributes.get("run")
        if run == self._owner["run"]:
            return
        claim = trial.state == TrialState.RUNNING and SINCE in attributes and run is not None
        if run is not None and (trial.number >= seen or not claim):
            # Other clocks may be wrong, so what happens from now on goes by this one.
            active = time() if seen else float(attributes[SINCE])
            self._peers[run] = Peer(attributes, max(active, self._peer(attributes).active))
        if trial.state in FINISHED or (claim and RESULT in attributes):
            finished = trials.decode(attributes)
            self._done.add(finished.config)
            self._news.append(finished)
        elif claim:
            self._open[trial.number] = Config.parse(attributes["config"])

    def _peer(self, attributes: Attributes) -> Peer:
        """The process that wrote a trial with these attributes."""
        heard = self._peers.get(attributes["run"])
        return heard or Peer(attributes, float(attributes[SINCE]))

    def _refusal(self, config: Config, own: int, limit: int | None) -> str | None:
        """Why the claim with the number `own` does not count; None if it does."""
        rivals = [number for number, theirs in self._open.items() if theirs == config]
        if not all(own < rival or self._settled(rival) for rival in rivals) or config in self._done:
            return "another process was faster"
        if limit is None:
            return None
        earlier = {theirs for number, theirs in self._open.items() if number < own} & self.claimed
        study = (self._done | self._mine.keys() | earlier) - {config}
        return None if len(study) < limit else f"the study has {len(study)} configurations"

    def _settled(self, number: int) -> bool:
        """Whether a claim's process is gone; ends the claim, with its result or as failed."""
        claim = self._id(number)
        if not self._peer(self._storage.get_trial(claim).user_attrs).gone:
            return False
        attributes = self._storage.get_trial(claim).user_attrs
        if RESULT in attributes:
            finished = trials.decode(attributes)
            self._end(claim, finished)
            self._done.add(finished.config)
        else:
            self._drop(claim, "orphaned")
        return True

    def _end(self, claim: int, trial: Trial, kept: Callable[[], None] = lambda: None) -> bool:
        """Completes a claim; False if it was failed meanwhile."""
        state, value = trials.verdict(trial)
        try:
            self._storage.set_trial_user_attr(claim, RESULT, trials.encode(trial))
            kept()
            values = None if value is None else [value]
            self._storage.set_trial_state_values(claim, state, values)
        except UpdateFinishedTrialError:
            # An earlier attempt was written, or this process was taken for gone.
            return self._storage.get_trial(claim).state in FINISHED
        return True

    def _drop(self, claim: int, why: str) -> None:
        with suppress(UpdateFinishedTrialError):  # another process ended it
            self._storage.set_trial_user_attr(claim, "ended", why)
            self._storage.set_trial_state_values(claim, TrialState.FAIL)

    def _add(self, trial: FrozenTrial, config: Config) -> int:
        self._unsure.add(config)
        claim = self._create(trial)
        self._unsure.discard(config)
        return claim

    def _written(self, config: Config) -> int | None:
        """The trial that was written although an error was raised, as when a server ends."""
        if config not in self._unsure:
            return None
        text, run = str(config), self._owner["run"]
        for trial in self._storage.get_all_trials(self._study, deepcopy=False):
            attributes = trial.user_attrs
            own = attributes.get("run") == run and attributes.get("config") == text
            if own and trial.state != TrialState.FAIL:
                return self._id(trial.number)
        return None

    def _create(self, trial: FrozenTrial) -> int:
        try:
            return self._storage.create_new_trial(self._study, template_trial=trial)
        except ValueError:
            # A database accepts only the words of the study's first trial. Parameters are for
            # people to read; the configuration is an attribute too.
            plain, kinds = copy(trial), trial.distributions.items()
            plain.distributions = {
                name: kind for name, kind in kinds if not isinstance(kind, CategoricalDistribution)
            }
            plain.params = {name: trial.params[name] for name in plain.distributions}
            return self._storage.create_new_trial(self._study, template_trial=plain)

    def _running(self) -> list[FrozenTrial]:
        return self._storage.get_all_trials(self._study, deepcopy=False, states=RUNNING)

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study, number)
