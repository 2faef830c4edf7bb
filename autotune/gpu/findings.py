"""The findings of verification on the device: counts and errors, read back in one copy."""

from __future__ import annotations

import numpy as np

from autotune.gpu.session import Session

CAPACITY = 128
"""Doubles; the verification of a winner takes 59."""


class Findings:
    """Doubles in device memory that verification kernels add to, each place for one finding."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._memory = session.allocate(8 * CAPACITY)
        self._copied = np.empty(CAPACITY)
        self._used = 0

    def clear(self) -> None:
        """Enqueues zeros for everything."""
        self._used = 0
        self._session.fill(int(self._memory), 0, 2 * CAPACITY)

    def reserve(self, count: int) -> int:
        """The index of the first of `count` places that nothing else uses."""
        index = self._used
        self._used += count
        assert self._used <= CAPACITY
        return index

    def address(self, index: int) -> int:
        """The device address of a place."""
        return int(self._memory) + 8 * index

    def read(self) -> list[float]:
        """All findings so far; waits for the stream."""
        self._session.download(self._copied, int(self._memory))
        return [float(value) for value in self._copied[: self._used]]
