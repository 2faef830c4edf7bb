"""Worker benches that crash, hang or are killed; they need no GPU."""

# ruff: noqa: ARG001, ARG002 - the worker calls these with arguments that they ignore
from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from autotune.measure.measurement import Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.measure.worker import PendingBench
from autotune.problem import Problem
from support.worker_benches import Fake, opened


class Brief(Fake):
    """A bench that takes two milliseconds a candidate and derives its time from its threads."""

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement:
        time.sleep(0.002)
        return Measurement(2000.0 - candidate.resources.threads, samples=20)

    def rematch(
        self, candidates: Sequence[Candidate], with_baseline: bool, deadline: float
    ) -> tuple[list[object], Measurement | None]:
        return [self.measure(candidate, None) for candidate in candidates], None


class Faulty(Brief):
    """A bench whose candidates of some widths fail as badly as kernels can."""

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement:
        match candidate.config.integer("tile_width"):
            case 5:
                raise RuntimeError("an illegal memory access was encountered")
            case 6:
                time.sleep(600)
            case 7:
                os._exit(7)
            case 8:
                ctypes.string_at(0)
        # As `fake_runner.by_width`, whose import would load half of the tests into every worker.
        return Measurement(100.0 + 10 * abs(candidate.config.integer("tile_width") - 23))


def brief(problem: Problem, index: int) -> PendingBench:
    return opened(Brief)


def faulty(problem: Problem, index: int) -> PendingBench:
    return opened(Faulty)


def mortal(problem: Problem, index: int) -> PendingBench:
    """A bench killed during its first start only; the file AUTOTUNE_TEST_MARKER marks that."""
    marker = Path(os.environ["AUTOTUNE_TEST_MARKER"])
    if not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return opened(Brief)


def doomed(problem: Problem, index: int) -> PendingBench:
    """A bench killed during every start."""
    os.kill(os.getpid(), signal.SIGKILL)
    return opened(Brief)
