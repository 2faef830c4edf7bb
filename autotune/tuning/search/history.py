"""What was given out of a set of configurations, and what came of it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Mask = npt.NDArray[np.bool_]

# A family that has had so many trials and whose best is so many times slower than the best of all
# gets no more of them, as long as others have something left.
LEAST, FAR = 8, 1.5


class History:
    """Configurations by their indices, each with the family that it is of.

    Attributes:
        taken: for each configuration whether it was given out.
        told: indices of those that came back, in that order.
        values: what each of `told` is worth: the logarithm of its time, infinite for a failure.
        pending: indices of those that have not come back, in the order in which they were given.
        best: the index with the least value; None if nothing has one.
    """

    def __init__(self, families: npt.NDArray[np.uint8]) -> None:
        self._families = families
        self.taken: Mask = np.zeros(len(families), bool)
        self.told: list[int] = []
        self.values: list[float] = []
        self.pending: dict[int, None] = {}
        self.best: int | None = None
        self._bests: dict[int, tuple[float, int]] = {}
        self._counts: dict[int, int] = {}

    def give(self, index: int) -> None:
        """It goes out, here or in another process."""
        self.taken[index] = True
        self.pending[index] = None

    def take_back(self, index: int) -> None:
        """Whoever had it will not try it."""
        if index in self.pending:
            del self.pending[index]
            self.taken[index] = False

    def tell(self, index: int, value: float) -> None:
        """It came back."""
        self.taken[index] = True
        self.pending.pop(index, None)
        self.told.append(index)
        self.values.append(value)
        family = int(self._families[index])
        self._counts[family] = self._counts.get(family, 0) + 1
        if value < self._bests.get(family, (math.inf, 0))[0]:
            self._bests[family] = value, index
            self.best = min(self._bests.values())[1]

    def has(self, index: int) -> bool:
        """Whether it came back."""
        return bool(self.taken[index]) and index not in self.pending

    @property
    def left(self) -> Mask:
        """What may be tried next: nothing of a family that is far behind, if there is more."""
        free = ~self.taken
        behind = [family for family in self._counts if self._behind(family)]
        hopeful = free & ~np.isin(self._families, behind) if behind else free
        return hopeful if hopeful.any() else free

    def rivals(self) -> Sequence[int]:
        """The best of each family, unless it is far behind."""
        limit = min(self._bests.values())[0] + math.log(FAR) if self._bests else -math.inf
        return [index for value, index in self._bests.values() if value <= limit]

    def _behind(self, family: int) -> bool:
        if self.best is None or self._counts[family] < LEAST:
            return False
        ahead = min(self._bests.values())[0]
        return self._bests.get(family, (math.inf, 0))[0] > ahead + math.log(FAR)
