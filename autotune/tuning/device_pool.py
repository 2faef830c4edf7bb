"""The devices of a tuning run, each with a thread that measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from time import monotonic

from autotune.runners.base import Candidate, Failure, Measurement, Runner
from autotune.tuning.evaluate import Trial
from autotune.tuning.pipeline import Ready

Measure = Callable[[Runner, Candidate], Trial]


class DevicePool:
    """Gives each candidate to the first device that is free; to be closed.

    Attributes:
        size: how many devices there are.
        busy_s: seconds that the devices took, added up.
        baseline: what the vendor library took, as soon as it could be timed without waiting for it.

    Args:
        runners: of devices of one model.
        measure: makes a trial of a candidate on one of them; called in that device's thread.
        ahead: whether the next candidate is prepared while the last one is on the device.
    """

    def __init__(self, runners: Sequence[Runner], measure: Measure, *, ahead: bool) -> None:
        self._measure, self._ahead = measure, ahead
        self._idle = list(runners)
        self._first, self.size = runners[0], len(runners)
        self._pool = ThreadPoolExecutor(len(runners), "measure")
        self._running: dict[Future[Trial], Runner] = {}
        self.busy_s = 0.0
        self.baseline: Measurement | None = None

    def trials(self, prepared: Iterable[Ready], going: Callable[[], bool]) -> Iterator[Trial]:
        """Finished trials, as long as it is `going`.

        While the next candidate is prepared, and asked for, the devices are at work.
        """
        for config, candidate in prepared:
            if isinstance(candidate, Failure):
                yield Trial(config, candidate)
                continue
            if not self._idle:
                yield from self._finished()
            if not going():
                break
            runner = self._idle.pop()
            self._running[self._pool.submit(self._try, runner, candidate)] = runner
            if not self._ahead:
                yield from self._finished()
        while self._running:
            yield from self._finished()

    def close(self) -> None:
        """Waits for what the devices are at."""
        self._pool.shutdown()

    def _finished(self) -> list[Trial]:
        """Waits for one at least."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        self._idle += [self._running.pop(one) for one in done]
        return [one.result() for one in done]

    def _try(self, runner: Runner, candidate: Candidate) -> Trial:
        began = monotonic()
        try:
            if runner is self._first and self.baseline is None and runner.baseline_ready:
                self.baseline = runner.baseline()
            return self._measure(runner, candidate)
        finally:
            self.busy_s += monotonic() - began
