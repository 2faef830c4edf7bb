"""A sampler that can only choose feasible configurations, and each of them once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.trial import FrozenTrial

from autotune.families.config import Value
from autotune.families.plan import Resources
from autotune.tuning.search.axes import Axis, families_in, matrix
from autotune.tuning.search.history import History, Mask

# The even draws at first: each is the farthest from those before of so many.
APART = 64


class Engine(Protocol):
    """Learns from the history of a search.

    Attributes:
        beside: the share of the choices that are made beside the best instead.
    """

    beside: float

    def propose(self, left: Mask, study: Study, trial: FrozenTrial) -> int | None:
        """The index of one of what is left; None if it has no opinion yet."""
        ...

    def learn(self, index: int, resources: Resources | None) -> None:
        """A configuration was compiled."""
        ...


class Feasible(BaseSampler):
    """Chooses among enumerated configurations, none of them twice.

    First come the guesses: the first `sure` of them anyway, the others only as long as nothing has
    come back. Then the engine is asked; some choices are configurations that differ from the best,
    or from the best of another family that is near, in the fewest parameters: constraints tie
    parameters together, and a draw that changes one alone is mostly infeasible. Without an opinion
    of the engine draws are even, the first `APART` of them apart from each other.

    Attributes:
        chosen: trial numbers to indices of configurations.
        forced: what the next choice is to be, if that is settled already.
    """

    def __init__(
        self,
        axes: Sequence[Axis],
        history: History,
        *,
        guesses: Sequence[int],
        sure: int,
        engine: Engine | None,
        start: int,
        random: np.random.Generator,
    ) -> None:
        self.chosen: dict[int, int] = {}
        self.forced: int | None = None
        self._axes, self._history = axes, history
        self._space = {axis.name: axis.distribution for axis in axes}
        self._guesses = self._worth(guesses, sure)
        self._engine, self._start, self._random = engine, start, random
        self._families = families_in(axes, len(history.taken))

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        """Chooses. Here and not while sampling: where nothing varies, nothing is sampled."""
        index = self._choose(study, trial) if self.forced is None else self.forced
        self._history.give(index)
        self.chosen[trial.number] = index

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        """All axes, whatever was tried so far."""
        del study, trial
        return self._space

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The parameters of the chosen configuration."""
        del study, search_space
        index = self.chosen[trial.number]
        return {axis.name: axis.param(index) for axis in self._axes}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        """Never called, since every parameter is sampled with the others."""
        raise NotImplementedError(param_name)

    def _worth(self, guesses: Sequence[int], sure: int) -> Iterator[int]:
        for place, index in enumerate(guesses):
            if place >= sure and self._history.told:
                return
            if not self._history.taken[index]:
                yield index

    def _choose(self, study: Study, trial: FrozenTrial) -> int:
        for index in self._guesses:
            return index
        left = self._history.left
        if self._engine is None:
            return self._even(left)
        if len(self._history.told) + len(self._history.pending) < self._start:
            return self._apart(left)
        if self._random.random() < self._engine.beside and (rivals := self._history.rivals()):
            return self._even(self._beside(left, rivals))
        proposed = self._engine.propose(left, study, trial)
        return self._even(left) if proposed is None else proposed

    @cached_property
    def _points(self) -> npt.NDArray[np.float32]:
        """Needed without guesses alone."""
        return matrix(self._axes, len(self._history.taken)).astype("f4")

    def _even(self, among: Mask) -> int:
        """Draws evenly; where there are several families, a family first: one may be small."""
        drawn = self._random.choice(np.unique(self._families[among]))
        return int(self._random.choice(np.flatnonzero(among & (self._families == drawn))))

    def _apart(self, left: Mask) -> int:
        drawn = np.array([self._even(left) for _ in range(APART)])
        known = [*self._history.told, *self._history.pending]
        if not known:
            return int(drawn[0])
        off = np.abs(self._points[drawn][:, None] - self._points[known][None]).sum(2)
        return int(drawn[off.min(1).argmax()])

    def _beside(self, left: Mask, rivals: Sequence[int]) -> Mask:
        """What is left of the configurations that differ from a rival in the fewest parameters.

        The rival is one whose family has something left, if there is any.
        """
        alive = [one for one in rivals if self._families[one] in self._families[left]]
        rival = int(self._random.choice(alive or list(rivals)))
        different: npt.NDArray[np.intp] = np.where(left, 0, len(self._axes) + 1)
        for axis in self._axes:
            different += axis.codes != axis.codes[rival]
        return np.asarray(different == different.min())


class Drawn:
    """The engine that takes what is nearest to a draw of an Optuna sampler."""

    beside = 0.5
    # Chosen among a few on CLBlast's Xgemm at 4096 on an RTX 3090 (17,956 configurations, no first
    # guesses). On 20 seeds that the choice had not seen the best of 200 trials was on average at
    # 92.9 % of the optimum with 0 and at 98.6 % with 0.5; on 20 more it was at 97.1 % with 0.5.

    def __init__(self, axes: Sequence[Axis], inner: BaseSampler) -> None:
        self._axes, self._inner = axes, inner
        self._space = {axis.name: axis.distribution for axis in axes}

    def learn(self, index: int, resources: Resources | None) -> None:
        """Nothing: it knows parameters alone."""

    def propose(self, left: Mask, study: Study, trial: FrozenTrial) -> int | None:
        """Of configurations that are equally near a draw the first counts."""
        drawn = self._inner.sample_relative(study, trial, self._space)
        return self._nearest(left, drawn) if drawn else None

    def _nearest(self, left: Mask, drawn: Mapping[str, Value | None]) -> int:
        distances = np.where(left, np.float32(0), np.inf)
        for axis in self._axes:
            distances += axis.distances(drawn[axis.name])
        return int(distances.argmin())
