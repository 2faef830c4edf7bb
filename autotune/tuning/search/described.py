"""The configurations as points: their parameters, features, and predicted times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autotune.candidates.features import Describe, Floats
from autotune.families.config import Config
from autotune.tuning.search.axes import SearchSpace
from autotune.tuning.search.history import History

Indices = npt.NDArray[np.intp]

# The standard deviation a feature is scaled to; parameters span 1.
WEIGHT = 0.4


class DescribedSpace:
    """Points of a search space, described by features only where they are needed.

    Describing one takes 40 us.

    Attributes:
        points: one row a configuration: its parameters, then its features where described; without
            features what makes single values of the parameters differ.
        parameters: the number of columns that are parameters.
        groups: numbers of consecutive columns that belong together.
        expected: logarithms of the predicted times of those described.
        least: the least of them.

    Args:
        configs: all configurations.
        space: the same as points.
        history: knows the resources of those that were compiled.
        describe: features and predicted times; None leaves the parameters alone.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        space: SearchSpace,
        history: History,
        describe: Describe | None,
    ) -> None:
        self._configs, self._history, self._features = configs, history, describe
        # Features tell such values apart better; beside them more inputs only dilute the distances.
        odd, sizes = space.oddities if describe is None else (np.empty((space.count, 0)), [])
        self.parameters = space.matrix.shape[1]
        self.points = np.hstack([space.matrix, odd])
        self.groups = [1] * self.parameters + sizes
        self.expected = np.zeros(len(configs))
        self.least = 0.0 if describe is None else np.inf
        self._described = np.full(len(configs), describe is None)
        self._scale: tuple[Floats, Floats] | None = None
        self._compiled = 0

    def refresh(self) -> None:
        """Has configurations described again whose resources are known by now."""
        told = self._history.told
        if self._features is not None:
            resources = self._history.resources
            compiled = [index for index in told[self._compiled :] if index in resources]
            self._described[compiled] = False
        self._compiled = len(told)

    def ensure(self, indices: Indices) -> None:
        """Describes the configurations that are not described yet."""
        missing = indices[~self._described[indices]]
        if len(missing):
            self._describe(missing)

    def _describe(self, indices: Indices) -> None:
        assert self._features is not None
        configs = [self._configs[index] for index in indices]
        resources = self._history.resources
        described = self._features(configs, [resources.get(int(index)) for index in indices])
        columns = described.features
        if described.predicted is not None:
            # A configuration that cannot run counts as the slowest that can.
            logs = np.log(described.predicted)
            worst = logs[np.isfinite(logs)].max(initial=self.expected.max())
            logs = np.where(np.isfinite(logs), logs, worst)
            columns = np.column_stack([columns, logs])
            self.expected[indices] = logs
        self.least = min(self.least, self.expected[indices].min())
        if self._scale is None:
            deviation = columns.std(0)
            self._scale = columns.mean(0), WEIGHT / np.where(deviation > 0, deviation, 1)
            room = np.zeros((len(self._configs), columns.shape[1]))
            self.points = np.hstack([self.points, room])
            self.groups += [1] * columns.shape[1]
        mean, weight = self._scale
        self.points[indices, -columns.shape[1] :] = (columns - mean) * weight
        self._described[indices] = True
