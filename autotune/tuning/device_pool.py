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
    """Gives each candidate to the first idle device. Close it after use.

    Attributes:
        size: number of devices.
        busy_s: total device-seconds.
        baseline: the vendor baseline, once it could be timed without waiting for the library.

    Args:
        runners: of devices of one model.
        measure: makes a trial of a candidate on a runner; called in that device's thread.
        ahead: whether the next candidate is prepared while a device measures the last one.
    """

    def __init__(self, runners: Sequence[Runner], measure: Measure, *, ahead: bool) -> None:
        self._measure, self._ahead = measure, ahead
        self._idle = list(runners)
        self._first, self.size = runners[0], len(runners)
        self._threads = ThreadPoolExecutor(len(runners), "measure")
        self._running: dict[Future[Trial], Runner] = {}
        self.busy_s = 0.0
        self.baseline: Measurement | None = None

    def trials(self, prepared: Iterable[Ready], time_left: Callable[[], bool]) -> Iterator[Trial]:
        """Finished trials, until there is no time left.

        The devices measure while the next candidate is proposed and prepared.
        """
        for config, candidate in prepared:
            if isinstance(candidate, Failure):
                yield Trial(config, candidate)
                continue
            if not self._idle:
                yield from self._wait()
            if not time_left():
                break
            runner = self._idle.pop()
            self._running[self._threads.submit(self._timed, runner, candidate)] = runner
            if not self._ahead:
                yield from self._wait()
        while self._running:
            yield from self._wait()

    def close(self) -> None:
        """Waits for running trials to finish."""
        self._threads.shutdown()

    def _wait(self) -> list[Trial]:
        """Waits for at least one trial to finish; returns the finished ones."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        self._idle += [self._running.pop(future) for future in done]
        return [future.result() for future in done]

    def _timed(self, runner: Runner, candidate: Candidate) -> Trial:
        """A trial on the runner; its seconds count as busy."""
        began = monotonic()
        try:
            if runner is self._first and self.baseline is None and runner.baseline_ready:
                self.baseline = runner.baseline()
            return self._measure(runner, candidate)
        finally:
            self.busy_s += monotonic() - began
