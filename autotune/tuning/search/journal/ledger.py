"""One study in a storage: what was finished, what is claimed, and by whom."""

from __future__ import annotations

import time
from contextlib import suppress
from copy import copy

from optuna.distributions import CategoricalDistribution
from optuna.exceptions import UpdateFinishedTrialError
from optuna.storages import BaseStorage
from optuna.trial import FrozenTrial, TrialState

from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import trials
from autotune.tuning.search.journal.owners import Owner
from autotune.tuning.search.journal.trials import RESULT, SINCE, Space
from autotune.tuning.search.studies import study_of

FINISHED = (TrialState.COMPLETE, TrialState.PRUNED)


class Ledger:
    """Claims and finishes trials of a study that other processes work on, too.

    What it raises is the storage's. Everything may then be called again: a trial that was written
    although an error was raised is not finished twice as long as it had been claimed.

    Attributes:
        told: the finished trials that were there at first, in the order in which they were begun.
        found: what others have finished since, for the reader to take away.
        claimed: what others that are alive are trying.
    """

    def __init__(self, storage: BaseStorage, study: str, space: Space, owner: Owner) -> None:
        study_of(study, storage)
        self._storage, self._space, self._owner = storage, space, owner
        self._study = storage.get_study_id_from_name(study)
        self._mine: dict[Config, int] = {}
        self._done: set[Config] = set()
        # Of others: the numbers of their claims, and when each of them was last heard of.
        self._open: dict[int, tuple[Config, Owner]] = {}
        self._signs: dict[str, float] = {}
        self._seen = 0
        self.found: list[Trial] = []
        self.claimed: frozenset[Config] = frozenset()
        self._look(strict=True)
        settled = [self._settle(number) for number in self._open]
        if any(settled):
            self._seen, self._open, self.found = 0, {}, []
            self._look(strict=True)
        self.told, self.found = self.found, []

    def look(self) -> None:
        """Reads what others have written since; what is none of ours is passed over."""
        self._look(strict=False)

    def claim(self, config: Config) -> bool:
        """Whether the configuration is this process's to try: nobody was faster.

        Everybody writes first and looks then, and of several the first in the storage has it.
        """
        if config in self._mine:
            return True
        if config in self._done or config in self.claimed:
            return False
        claim = self._create(trials.claim(config, self._space, self._owner))
        self._mine[config] = claim
        self.look()
        number = self._storage.get_trial_number_from_id(claim)
        rivals = [one for one, (theirs, _) in self._open.items() if theirs == config]
        settled = all(one > number or self._settle(one) for one in rivals)
        if settled and config not in self._done:
            return True
        del self._mine[config]
        self._drop(claim, "another process was faster")
        return False

    def finish(self, trial: Trial) -> None:
        """Writes what became of a configuration, claimed or not."""
        claim = self._mine.get(trial.config)
        if claim is None or not self._end(claim, trial):
            self._create(trials.whole(trial, self._space, self._owner))
        self._mine.pop(trial.config, None)
        self._done.add(trial.config)

    def restore(self, trial: Trial) -> None:
        """Writes a trial unless its configuration is there already."""
        if trial.config not in self._done:
            self.finish(trial)
            self.told.append(trial)

    def release(self) -> None:
        """Gives up all claims."""
        running = (TrialState.RUNNING,)
        for trial in self._storage.get_all_trials(self._study, deepcopy=False, states=running):
            # Not only those known of: one may have been written although an error was raised.
            if trial.user_attrs.get("run") == self._owner.run:
                self._drop(self._id(trial.number), "released")
        self._mine.clear()

    def _look(self, *, strict: bool) -> None:
        # The list takes 0.1 ms for 1,000 trials; only what is new or was open is looked at.
        listed = self._storage.get_all_trials(self._study, deepcopy=False)
        fresh = [listed[number] for number in self._open] + listed[self._seen :]
        self._seen, self._open = len(listed), {}
        for trial in sorted(fresh, key=lambda trial: trial.number):
            with suppress(*(() if strict else (KeyError, TypeError, ValueError))):
                self._read(trial)
        self.claimed = frozenset(
            config for config, owner in self._open.values() if not self._gone(owner)
        )

    def _read(self, trial: FrozenTrial) -> None:
        attributes = trial.user_attrs
        if attributes.get("run") == self._owner.run:
            return
        if SINCE in attributes:
            owner = Owner.of(attributes)
            self._signs[owner.run] = max(attributes[SINCE], self._signs.get(owner.run, 0.0))
            if not trial.state.is_finished():
                self._open[trial.number] = Config.parse(attributes["config"]), owner
        if trial.state in FINISHED:
            finished = trials.decode(attributes)
            self._done.add(finished.config)
            self.found.append(finished)

    def _gone(self, owner: Owner) -> bool:
        return owner.gone(time.time() - self._signs[owner.run])

    def _settle(self, number: int) -> bool:
        """Whether a claim has ended, its process being gone: as failed, or with its result."""
        config, owner = self._open[number]
        if not self._gone(owner):
            return False
        claim = self._id(number)
        attributes = self._storage.get_trial(claim).user_attrs
        if RESULT in attributes:
            self._end(claim, trials.decode(attributes))
            self._done.add(config)
        else:
            self._drop(claim, "orphaned")
        return True

    def _end(self, claim: int, trial: Trial) -> bool:
        """Whether the claim is now finished with what became of it."""
        state, values = trials.verdict(trial)
        try:
            self._storage.set_trial_user_attr(claim, RESULT, trials.encode(trial))
            self._storage.set_trial_state_values(claim, state, values)
        except UpdateFinishedTrialError:
            # By an earlier attempt whose answer got lost; or this process was taken for gone.
            return self._storage.get_trial(claim).state in FINISHED
        return True

    def _drop(self, claim: int, why: str) -> None:
        with suppress(UpdateFinishedTrialError):  # somebody else did
            self._storage.set_trial_user_attr(claim, "ended", why)
            self._storage.set_trial_state_values(claim, TrialState.FAIL)

    def _create(self, trial: FrozenTrial) -> int:
        try:
            return self._storage.create_new_trial(self._study, template_trial=trial)
        except ValueError:
            # A database takes no other choices of a word than those of the study's first trial.
            # The parameters are for people to look at; the attributes hold them as well.
            plain = copy(trial)
            plain.distributions = {
                name: distribution
                for name, distribution in trial.distributions.items()
                if not isinstance(distribution, CategoricalDistribution)
            }
            plain.params = {name: trial.params[name] for name in plain.distributions}
            return self._storage.create_new_trial(self._study, template_trial=plain)

    def _id(self, number: int) -> int:
        return self._storage.get_trial_id_from_study_id_trial_number(self._study, number)
