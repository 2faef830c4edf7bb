"""The trials of a search's study, as indices of configurations."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.trial import FrozenTrial, TrialState

from autotune.families.plan import Resources
from autotune.tuning.search.axes import SearchSpace

Mask = npt.NDArray[np.bool_]

RESOURCES = "resources"
"""The user attribute of a trial that holds the resources its configuration was compiled to."""

# A family with LEAST trials whose best is FAR times as slow as the best of all gets no more of
# them while other families have configurations left.
LEAST, FAR = 8, 1.5


class History:
    """Configurations by their indices: which are running, which are finished, which are left.

    Attributes:
        used: for each configuration whether it is running or finished.
        told: indices of finished ones, in the order they finished.
        values: the value of each of `told`: the logarithm of its time, infinite for a failure.
        pending: indices of running ones, in the order they started.
        resources: by index, of those that were compiled.
        best: the index with the least value; None if there is none.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._space = space
        self.used: Mask = np.zeros(space.count, bool)
        self.told: list[int] = []
        self.values: list[float] = []
        self.pending: dict[int, None] = {}
        self.resources: dict[int, Resources] = {}
        self.best: int | None = None
        self._bests: dict[int, tuple[float, int]] = {}
        self._counts: dict[int, int] = {}
        # Trials of the study that may still change, by number; and how many were read.
        self._open: dict[int, int | None] = {}
        self._read = 0

    def read(self, study: Study) -> None:
        """Takes over what changed in the study since the last call."""
        trials = study.get_trials(deepcopy=False)
        self._open.update(dict.fromkeys(range(self._read, len(trials))))
        self._read = len(trials)
        for number in [*self._open]:
            self._follow(trials[number])

    def start(self, index: int) -> None:
        """A configuration is being tried, here or in another process."""
        self.used[index] = True
        self.pending[index] = None

    def release(self, index: int) -> None:
        """A configuration that was being tried is free again."""
        if index in self.pending:
            del self.pending[index]
            self.used[index] = False

    def finish(self, index: int, value: float) -> None:
        """A configuration was tried."""
        self.used[index] = True
        self.pending.pop(index, None)
        self.told.append(index)
        self.values.append(value)
        family = int(self._space.families[index])
        self._counts[family] = self._counts.get(family, 0) + 1
        if value < self._bests.get(family, (math.inf, 0))[0]:
            self._bests[family] = value, index
            self.best = min(self._bests.values())[1]

    @property
    def left(self) -> Mask:
        """The configurations to choose from: those of families far behind only if no others are."""
        free = ~self.used
        behind = [family for family in self._counts if self._behind(family)]
        hopeful = free & ~np.isin(self._space.families, behind) if behind else free
        return hopeful if hopeful.any() else free

    def rivals(self) -> Sequence[int]:
        """The best of each family, unless it is far behind."""
        limit = min(self._bests.values())[0] + math.log(FAR) if self._bests else -math.inf
        return [index for value, index in self._bests.values() if value <= limit]

    def _follow(self, trial: FrozenTrial) -> None:
        index = self._open[trial.number]
        if index is None:
            if trial.params.keys() != self._space.distributions.keys():
                return  # the sampler is choosing its parameters
            index = self._open[trial.number] = self._space.index(trial.params)
            self.start(index)
        if not trial.state.is_finished():
            return
        del self._open[trial.number]
        if trial.state == TrialState.FAIL:
            self.release(index)
            return
        if (resources := trial.user_attrs.get(RESOURCES)) is not None:
            self.resources[index] = resources
        self.finish(index, math.inf if trial.value is None else trial.value)

    def _behind(self, family: int) -> bool:
        if self.best is None or self._counts[family] < LEAST:
            return False
        ahead = min(self._bests.values())[0]
        return self._bests.get(family, (math.inf, 0))[0] > ahead + math.log(FAR)
