"""The thread that writes, so that the device never waits for a disk."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from threading import Event, Lock
from time import monotonic
from typing import TypeVar

from autotune.tuning.evaluate import Trial

T = TypeVar("T")

PAUSES_S = (0.05, 5.0)
"""The first and the longest pause before something is written again."""


class Writer:
    """Writes finished trials in their order, again and again where that fails.

    The interpreter does not end before everything is written or given up.

    Attributes:
        error: why what is pending is not written; None if nothing failed.

    Args:
        write: what to do with each; called on the thread.
        patience_s: seconds for which it is tried again.
        name: of the thread, which is there from the first time that it has something to do.
    """

    def __init__(self, write: Callable[[Trial], None], patience_s: float, name: str) -> None:
        self.error: Exception | None = None
        self._write, self._patience_s = write, patience_s
        self._failing_since = 0.0
        self._pending: deque[Trial] = deque()
        self._busy, self._lock, self._hurry = False, Lock(), Event()
        self._pool = ThreadPoolExecutor(1, name)

    @property
    def pending(self) -> list[Trial]:
        """What is not written yet; the first may be under way."""
        with self._lock:
            return [*self._pending]

    @property
    def overdue(self) -> bool:
        """Whether nothing could be written for as long as it is tried."""
        return self.error is not None and monotonic() - self._failing_since >= self._patience_s

    def put(self, trial: Trial) -> bool:
        """Takes a trial, to be written as soon as possible.

        False if the thread has ended: then one attempt was made to write it, and no other will be.
        """
        with self._lock:
            self._pending.append(trial)
            if self._busy:
                return True
            self._busy = True
        try:
            self._pool.submit(self._drain)
        except RuntimeError:  # a device was still at work when the run was interrupted
            self._hurry.set()
            self._drain()
            return False
        return True

    def run(self, act: Callable[[], T]) -> Future[T]:
        """Does something else on the thread, after what was put before."""
        return self._pool.submit(act)

    def drain(self) -> None:
        """Waits until everything is written or given up, after one more attempt at least."""
        self._pool.submit(self._drain).result()

    def stop(self, within_s: float) -> None:
        """Ends the thread without further attempts; what is then pending was not written."""
        self._hurry.set()
        last = self._pool.submit(lambda: None)
        self._pool.shutdown(wait=False)
        # What it is at may be stuck.
        wait([last], within_s)

    def _drain(self) -> None:
        pause, longest = PAUSES_S
        while (trial := self._next()) is not None:
            if self._written(trial):
                with self._lock:
                    self._pending.popleft()
            elif self.overdue or self._hurry.wait(min(pause, self._patience_s)):
                with self._lock:
                    self._busy = False
                return
            else:
                pause = min(2 * pause, longest)

    def _written(self, trial: Trial) -> bool:
        try:
            self._write(trial)
        except Exception as error:  # of whatever kind: what was measured is not to be lost
            if self.error is None:
                self._failing_since = monotonic()
            self.error = error
            return False
        self.error = None
        return True

    def _next(self) -> Trial | None:
        with self._lock:
            # In the same breath, or what is put now would wait for what is put next.
            self._busy = bool(self._pending)
            return self._pending[0] if self._pending else None
