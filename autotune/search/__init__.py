"""Which configuration to try next, and the journal of what was tried. The one user of optuna.

`Search` asks a sampler in memory; `Journal` keeps finished trials on disk. They know nothing of
each other: another engine or another storage replaces one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import optuna
from optuna.trial import TrialState

from autotune.config import Config
from autotune.evaluate import Trial
from autotune.runner import Failure
from autotune.search.axes import Axis, axes_of
from autotune.search.journal import Journal
from autotune.search.projected import Projected
from autotune.search.studies import study_of

__all__ = ["Journal", "Sampler", "Search", "axes_of"]

Sampler = Literal["tpe", "random", "exhaustive"]

# Trials before TPE starts to choose; until then the first guesses and even draws do. Half and
# half, the guesses say where good times are and the draws how the rest of the space behaves.
STARTUP = 20
# A family whose best is up to so many times slower than the best of all is still searched around
# its own best: a small family is soon at its optimum, a large one later at a better one.
RIVAL = 1.5


class Search:
    """Ask and tell over an enumerated set of configurations, of one family or of several.

    No configuration is given out twice, nor one that is among `told`. What is given out follows
    from the arguments and from what is told in which order.

    Args:
        configs: all configurations to choose from, at least one; the one that is expected to be
            the fastest first.
        sampler: `tpe` learns from the times, `random` draws evenly, `exhaustive` goes in order.
        seed: of the sampler. One that goes on from `told` draws other numbers than at first.
        axes: of the configurations, if they are known already.
        guesses: what `tpe` gives out first.
        told: trials of earlier runs; those that are not of `configs` are passed over.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        axes: Sequence[Axis] | None = None,
        *,
        sampler: Sampler = "tpe",
        seed: int = 0,
        guesses: Iterable[Config] = (),
        told: Iterable[Trial] = (),
    ) -> None:
        self._configs = configs
        self._index = {config: index for index, config in enumerate(configs)}
        self._axes = axes_of(configs) if axes is None else axes
        self._space = {axis.name: axis.distribution for axis in self._axes}
        known = [trial for trial in told if trial.config in self._index]
        first = guesses if sampler == "tpe" else configs if sampler == "exhaustive" else ()
        seeds = np.random.SeedSequence([seed, len(known)])
        self._projected = Projected(
            self._axes,
            len(configs),
            queue=[self._index[config] for config in first if config in self._index],
            inner=_tpe(int(seeds.generate_state(1)[0])) if sampler == "tpe" else None,
            random=np.random.default_rng(seeds),
        )
        self._study = study_of("search", sampler=self._projected)
        self._learns = sampler == "tpe"
        self._asked: dict[Config, optuna.Trial] = {}
        self._told = 0
        self._bests: dict[str, Trial] = {}
        for trial in known:
            self._remember(trial)

    def ask(self) -> Config | None:
        """The next configuration to try; None if all have been given out."""
        if self._projected.taken.all():
            return None
        trial = self._study.ask(self._space)
        config = self._configs[self._projected.chosen[trial.number]]
        self._asked[config] = trial
        return config

    def tell(self, trial: Trial) -> None:
        """What became of a configuration that was asked for."""
        self._study.tell(self._asked.pop(trial.config), *_verdict(trial))
        self._note(trial)

    def _remember(self, trial: Trial) -> None:
        index = self._index[trial.config]
        self._projected.taken[index] = True
        value, state = _verdict(trial)
        params = {axis.name: axis.param(index) for axis in self._axes}
        self._study.add_trial(
            optuna.create_trial(state=state, value=value, params=params, distributions=self._space)
        )
        self._note(trial)

    def _note(self, trial: Trial) -> None:
        self._told += 1
        family = trial.config.family
        if family not in self._bests or trial.time_us < self._bests[family].time_us:
            self._bests[family] = trial
        best_us = min(one.time_us for one in self._bests.values())
        if self._learns and self._told >= STARTUP and best_us < math.inf:
            self._projected.incumbents = [
                self._index[one.config]
                for one in self._bests.values()
                if one.time_us <= RIVAL * best_us
            ]


def _verdict(trial: Trial) -> tuple[float | None, TrialState]:
    # TPE passes FAIL over and would ask for the neighbourhood again; PRUNED counts as bad.
    if isinstance(trial.outcome, Failure):
        return None, TrialState.PRUNED
    return math.log(trial.time_us), TrialState.COMPLETE


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(
        n_startup_trials=STARTUP, multivariate=True, constant_liar=True, seed=seed
    )
