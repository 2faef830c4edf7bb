"""The stop rule of a search."""

from __future__ import annotations

# The search stops once the untried configurations may be expected to improve the best time by less
# than ENOUGH, LOOKS times in a row; the check runs every EVERY trials. docs/search.md measures the
# cost.
ENOUGH, LOOKS, EVERY = 0.0075, 3, 5


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
