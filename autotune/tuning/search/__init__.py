"""Which configuration to try next, and the journal of what was tried. The one user of optuna.

`Search` asks a sampler in memory; `Journal` keeps finished trials on disk. They know nothing of
each other: another engine or another storage replaces one of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter

import numpy as np
import optuna
from optuna.trial import TrialState

from autotune.candidates.features import Describe
from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Sampler
from autotune.tuning.search.axes import Axis, axes_of, families_in
from autotune.tuning.search.history import History
from autotune.tuning.search.journal import Journal
from autotune.tuning.search.patience import Patience
from autotune.tuning.search.sampler import Drawn, Engine, Feasible
from autotune.tuning.search.studies import study_of
from autotune.tuning.search.surrogate import Surrogate

__all__ = ["Journal", "Patience", "Sampler", "Search", "axes_of"]

# Trials before an engine is asked, if there are no guesses, and guesses that are tried anyway.
START, SURE = 8, 8
# Trials before TPE has an opinion of its own.
TPE_START = 20
# Trials before the outlook says anything.
OUTLOOK = 40


class Search:
    """Ask and tell over an enumerated set of configurations, of one family or of several.

    No configuration is given out twice, nor one that is among `told`. What is given out follows
    from the arguments and from what is told in which order.

    Args:
        configs: all configurations to choose from, at least one; the one that is expected to be
            the fastest first.
        sampler: `gp` models the times by a Gaussian process, `tpe` learns from them by Optuna's
            tree-structured Parzen estimator, `random` draws evenly, `exhaustive` goes in order.
        seed: of the sampler. One that goes on from `told` draws other numbers than at first.
        axes: of the configurations, if they are known already.
        guesses: what `gp` and `tpe` give out first, the best first.
        told: trials of earlier runs; those that are not of `configs` are passed over.
        describe: what is known of the configurations besides their parameters, for `gp`.
        value: what is to become small, of a trial; infinite for a failure.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        axes: Sequence[Axis] | None = None,
        *,
        sampler: Sampler = "gp",
        seed: int = 0,
        guesses: Iterable[Config] = (),
        told: Iterable[Trial] = (),
        describe: Describe | None = None,
        value: Callable[[Trial], float] = attrgetter("time_us"),
    ) -> None:
        self._configs, self._value = configs, value
        self._index = {config: index for index, config in enumerate(configs)}
        self._axes = axes_of(configs) if axes is None else axes
        self._space = {axis.name: axis.distribution for axis in self._axes}
        self._history = History(families_in(self._axes, len(configs)))
        known = [trial for trial in told if trial.config in self._index]
        seeds = np.random.SeedSequence([seed, len(known)])
        random = np.random.default_rng(seeds)
        self._surrogate: Surrogate | None = None
        self._engine: Engine | None = None
        if sampler == "gp":
            self._engine = self._surrogate = Surrogate(
                configs, self._axes, self._history, describe, random
            )
        elif sampler == "tpe":
            self._engine = Drawn(self._axes, _tpe(int(seeds.generate_state(1)[0])))
        first = configs if sampler == "exhaustive" else guesses if self._engine else ()
        self._sampler = Feasible(
            self._axes,
            self._history,
            guesses=[self._index[config] for config in first if config in self._index],
            sure=len(configs) if sampler == "exhaustive" else SURE,
            engine=self._engine,
            start=START,
            random=random,
        )
        self._study = study_of("search", sampler=self._sampler)
        self._asked: dict[Config, optuna.Trial] = {}
        self._held: AbstractSet[Config] = frozenset()
        for trial in known:
            self.learn(trial)

    def ask(self) -> Config | None:
        """The next configuration to try; None if all have been given out."""
        return None if self._history.taken.all() else self._given()

    def spare(self, fits: Callable[[Config], bool]) -> Config | None:
        """The most promising configuration that `fits`, if one of the best does.

        For a device that would wait otherwise: other configurations promise more.
        """
        if self._surrogate is None or self._history.taken.all():
            return None
        left = self._history.left
        self._sampler.forced = self._surrogate.spare(left, lambda index: fits(self._configs[index]))
        try:
            return None if self._sampler.forced is None else self._given()
        finally:
            self._sampler.forced = None

    def tell(self, trial: Trial) -> None:
        """What became of a configuration that was asked for."""
        self._study.tell(self._asked.pop(trial.config), *self._verdict(trial))
        self._note(trial)

    def learn(self, trial: Trial) -> None:
        """What became of a configuration that was not asked for here.

        One that was is passed over, as it will be told; so are unknown ones.
        """
        index = self._index.get(trial.config)
        if index is None or trial.config in self._asked or self._history.has(index):
            return
        value, state = self._verdict(trial)
        params = {axis.name: axis.param(index) for axis in self._axes}
        self._study.add_trial(
            optuna.create_trial(state=state, value=value, params=params, distributions=self._space)
        )
        self._note(trial)

    def give_up(self, config: Config) -> None:
        """A configuration that was asked for is another process's to try."""
        self._study.tell(self._asked.pop(config), state=TrialState.FAIL)

    def held(self, configs: AbstractSet[Config]) -> None:
        """Other processes try these now, and are done with those that they tried before.

        What they try is not given out here, unless they give it up.
        """
        for config in self._held - configs:
            index = self._index.get(config)
            if index is not None and config not in self._asked:
                self._history.take_back(index)
        for config in configs - self._held:
            index = self._index.get(config)
            if index is not None and not self._history.taken[index]:
                self._history.give(index)
        self._held = configs

    def outlook(self) -> float | None:
        """By which share further trials are expected to beat the best time, however many.

        None if that is not known: so far, or with this sampler.
        """
        if self._surrogate is None or len(self._history.told) < OUTLOOK:
            return None
        return self._surrogate.outlook(self._history.left)

    def _given(self) -> Config:
        trial = self._study.ask(self._space)
        config = self._configs[self._sampler.chosen[trial.number]]
        self._asked[config] = trial
        return config

    def _note(self, trial: Trial) -> None:
        index = self._index[trial.config]
        value = self._value(trial)
        self._history.tell(index, math.log(value) if value < math.inf else math.inf)
        if self._engine is not None:
            self._engine.learn(index, trial.resources)

    def _verdict(self, trial: Trial) -> tuple[float | None, TrialState]:
        # TPE passes FAIL over and would ask for the neighbourhood again; PRUNED counts as bad.
        value = self._value(trial)
        if value == math.inf:
            return None, TrialState.PRUNED
        return math.log(value), TrialState.COMPLETE


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(
        n_startup_trials=TPE_START, multivariate=True, constant_liar=True, seed=seed
    )
