"""When further trials are no longer worth it."""

from __future__ import annotations

# The search ends when all that is left is expected to give less than this share of the time, so
# often in a row; that is looked at after every so many trials. docs/search.md has what it costs.
ENOUGH, LOOKS, EVERY = 0.005, 3, 5


class Patience:
    """Follows what a search expects of all that it has not tried.

    Attributes:
        outlook: what it expected when it was looked at last; None as long as that is unknown.
    """

    def __init__(self) -> None:
        self.outlook: float | None = None
        self._low, self._looked = 0, 0

    def due(self, trials: int) -> bool:
        """Whether it is time to look again, after so many trials."""
        return not self.over and trials >= self._looked + EVERY

    def look(self, trials: int, outlook: float | None) -> None:
        """Takes note of the outlook after so many trials."""
        self._looked, self.outlook = trials, outlook
        self._low = 0 if outlook is None or outlook >= ENOUGH else self._low + 1

    @property
    def over(self) -> bool:
        """Whether the rest is not worth it."""
        return self._low >= LOOKS
