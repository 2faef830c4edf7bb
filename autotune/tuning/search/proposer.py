"""Ask and tell: which configuration to try next. The one user of Optuna's samplers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from operator import attrgetter

import numpy as np
import optuna
from optuna.samplers import BaseSampler, TPESampler
from optuna.storages import BaseStorage
from optuna.trial import TrialState

from autotune.candidates.features import Describe
from autotune.families.config import Config
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Sampler
from autotune.tuning.search.axes import Axis, SearchSpace, axes_of
from autotune.tuning.search.sampler import SURE, FeasibleSampler, History, Projection
from autotune.tuning.search.surrogate import Surrogate

# Trials before TPE has an opinion of its own.
TPE_START = 20
# Trials before there is an outlook.
OUTLOOK = 40
# The search stops once the untried configurations may be expected to improve the best time by less
# than ENOUGH, LOOKS times in a row; the check runs every EVERY trials. docs/search.md measures the
# cost.
ENOUGH, LOOKS, EVERY = 0.0075, 3, 5


class Proposer:
    """Ask and tell over an enumerated set of configurations, of one family or of several.

    No configuration is proposed twice, nor is one among `told`. The proposals follow from the
    arguments and from what is told in which order.

    All state is in an Optuna study in memory: a finished trial is COMPLETE with the logarithm of
    its time, or PRUNED for a failure; a configuration being tried, here or by another process, is
    RUNNING; one that was let go of is FAIL.

    Attributes:
        configs: all configurations.

    Args:
        configs: all configurations to choose from, at least one, the best predicted first.
        axes: those of `configs`; computed if None.
        sampler: `gp` models the times by a Gaussian process, `tpe` learns from them by Optuna's
            tree-structured Parzen estimator, `random` draws evenly, `exhaustive` goes in order.
        seed: random seed. A search that continues from `told` draws different numbers.
        guesses: what `gp` and `tpe` propose first, the best first.
        told: trials of earlier runs; those not among `configs` are ignored.
        describe: features of the configurations and a model's prediction, for `gp`.
        value: the quantity to minimise, of a trial; infinite for a failure.
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
        self.configs, self._value = configs, value
        self._index = {config: index for index, config in enumerate(configs)}
        self._space = SearchSpace(axes_of(configs) if axes is None else axes, len(configs))
        self._history = History(self._space)
        earlier = [trial for trial in told if trial.config in self._index]
        seeds = np.random.SeedSequence([seed, len(earlier)])
        random = np.random.default_rng(seeds)
        self._surrogate: Surrogate | None = None
        if sampler == "gp":
            self._surrogate = Surrogate(configs, self._space, self._history, describe, random)
        inner = _tpe(int(seeds.generate_state(1)[0])) if sampler == "tpe" else None
        self._study = study_of("search", sampler=self._feasible(sampler, inner, guesses, random))
        # Running trials by configuration: those asked for here, and those of other processes.
        self._asked: dict[Config, optuna.Trial] = {}
        self._elsewhere: dict[Config, optuna.Trial] = {}
        self._told: set[Config] = set()
        for trial in earlier:
            self.learn(trial)

    @property
    def running(self) -> int:
        """The number of configurations asked for and not told yet."""
        return len(self._asked)

    def ask(self) -> Config | None:
        """The next configuration to try; None if all have been proposed."""
        if self._history.used.all():
            return None
        trial = self._study.ask(self._space.distributions)
        index = self._space.index(trial.params)
        self._history.start(index)
        self._asked[self.configs[index]] = trial
        return self.configs[index]

    def spare(self, fits: Callable[[Config], bool]) -> Config | None:
        """The most promising configuration that `fits`, if one of the best does.

        For a device that would otherwise wait: other configurations promise more.
        """
        if self._surrogate is None or self._history.used.all():
            return None
        left = self._history.left
        index = self._surrogate.spare(left, lambda index: fits(self.configs[index]))
        if index is None:
            return None
        self._asked[self.configs[index]] = self._started(index)
        return self.configs[index]

    def tell(self, trial: Trial) -> None:
        """Finishes a configuration that was asked for."""
        self._finish(self._asked.pop(trial.config), trial)

    def learn(self, trial: Trial) -> None:
        """Adds a trial that was not asked for here.

        Ignored for a configuration that was asked for, is finished, or is not in the space.
        """
        config = trial.config
        index = self._index.get(config)
        if index is None or config in self._asked or config in self._told:
            return
        elsewhere = config in self._elsewhere
        running = self._elsewhere.pop(config) if elsewhere else self._started(index)
        self._finish(running, trial)

    def give_up(self, config: Config) -> None:
        """Leaves a configuration that was asked for to the process that has claimed it."""
        self._elsewhere[config] = self._asked.pop(config)

    def withdraw(self) -> tuple[Config, ...]:
        """Forgets the configurations that were asked for and not told; returns them."""
        configs = tuple(self._asked)
        for config in configs:
            self._release(config, self._asked.pop(config))
        return configs

    def exclude(self, configs: AbstractSet[Config]) -> None:
        """Proposes none of `configs`, which other processes have claimed.

        Those excluded by an earlier call alone may be proposed again.
        """
        for config in [config for config in self._elsewhere if config not in configs]:
            self._release(config, self._elsewhere.pop(config))
        for config in sorted(configs - self._elsewhere.keys() - self._asked.keys() - self._told):
            if config in self._index:
                self._elsewhere[config] = self._started(self._index[config])

    def refuse(self, places: Sequence[int]) -> None:
        """Proposes none of the configurations at these places from now on."""
        self._history.used[np.array(places, int)] = True

    def outlook(self) -> float | None:
        """The share by which all further trials together are expected to beat the best time.

        None if it is not known: before `OUTLOOK` trials, or with another sampler than `gp`.
        """
        if self._surrogate is None or len(self._history.told) < OUTLOOK:
            return None
        return self._surrogate.outlook(self._history.left)

    def _feasible(
        self,
        sampler: Sampler,
        inner: BaseSampler | None,
        guesses: Iterable[Config],
        random: np.random.Generator,
    ) -> FeasibleSampler:
        engine = Projection(self._space, inner) if inner else self._surrogate
        everything = sampler == "exhaustive"
        first = self.configs if everything else guesses if engine else ()
        return FeasibleSampler(
            self._space,
            self._history,
            guesses=[self._index[config] for config in first if config in self._index],
            sure=len(self.configs) if everything else SURE,
            engine=engine,
            random=random,
        )

    def _started(self, index: int) -> optuna.Trial:
        """A running trial of a configuration."""
        self._history.start(index)
        self._study.enqueue_trial(self._space.params(index))
        return self._study.ask(self._space.distributions)

    def _release(self, config: Config, running: optuna.Trial) -> None:
        """Makes a configuration available again."""
        self._history.release(self._index[config])
        self._study.tell(running, state=TrialState.FAIL)

    def _finish(self, running: optuna.Trial, trial: Trial) -> None:
        self._told.add(trial.config)
        value = self._value(trial)
        log = math.log(value) if value < math.inf else math.inf
        self._history.finish(self._index[trial.config], log, trial.resources)
        if value < math.inf:
            self._study.tell(running, log)
        else:
            # TPE ignores FAIL and would ask for the neighbourhood again; PRUNED counts as bad.
            self._study.tell(running, state=TrialState.PRUNED)


class Patience:
    """Follows the improvement that a search expects of the configurations it has not tried.

    Attributes:
        outlook: the expected improvement at the last check, 0.01 for 1 %; None while unknown.
    """

    def __init__(self) -> None:
        self.outlook: float | None = None
        self._low, self._looked = 0, 0

    def due(self, trials: int) -> bool:
        """Whether the next check is due at this number of trials."""
        return not self.over and trials >= self._looked + EVERY

    def look(self, trials: int, outlook: float | None) -> None:
        """Records the outlook at this number of trials."""
        self._looked, self.outlook = trials, outlook
        self._low = 0 if outlook is None or outlook >= ENOUGH else self._low + 1

    @property
    def over(self) -> bool:
        """Whether the search should stop."""
        return self._low >= LOOKS


def study_of(
    name: str, storage: BaseStorage | None = None, sampler: BaseSampler | None = None
) -> optuna.Study:
    """The study of that name, created if necessary; in memory without a storage."""
    verbosity = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        return optuna.create_study(
            study_name=name, storage=storage, sampler=sampler, load_if_exists=True
        )
    finally:
        optuna.logging.set_verbosity(verbosity)


def _tpe(seed: int) -> BaseSampler:
    return TPESampler(n_startup_trials=TPE_START, multivariate=True, constant_liar=True, seed=seed)
