"""A session whose device only advances a clock."""

from __future__ import annotations

from types import SimpleNamespace


class Event:
    """A point in the device's time, in microseconds."""

    def __init__(self, now: float) -> None:
        self.now = now

    def time_till(self, later: Event) -> float:
        """Milliseconds."""
        return (later.now - self.now) / 1e3

    def synchronize(self) -> None:
        """Everything has run."""


class ClockSession:
    """The part of a session that a timer uses; `now` is in microseconds.

    Args:
        l2_bytes: bytes of the device's L2 cache.
    """

    stream = None

    def __init__(self, l2_bytes: int) -> None:
        self.now = 0.0
        self.device = SimpleNamespace(l2_bytes=l2_bytes)

    def mark(self) -> Event:
        return Event(self.now)

    def synchronize(self) -> None:
        """Everything has run."""

    def allocate(self, size: int) -> int:
        return size
