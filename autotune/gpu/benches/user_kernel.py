"""The bench of one user kernel on one GPU: verifies candidates and times them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from autotune.gpu.arrays import GuardedArrays
from autotune.gpu.benches.base import BaseBench, Energies, Ready, Rematch
from autotune.gpu.judgement import Verdict
from autotune.gpu.opening import open_session
from autotune.gpu.session import Run, Session
from autotune.gpu.worker import PendingBench
from autotune.runners.base import BestTimes, Candidate, Failure, Measurement
from autotune.runners.objective import HOT, Objective
from autotune.user_kernels.workload import Comparison, Workload

RUNS = 2
"""A kernel that is right only the first time is wrong; the second run has nothing to load."""


def open_bench(work: Workload, index: int) -> PendingBench:
    """Opens the bench of a worker; its session stays open until the process ends."""
    session = open_session(index)
    return PendingBench(
        session.device, session.driver, lambda: KernelBench(session.__enter__(), work)
    )


class KernelBench(BaseBench):
    """Verifies and times candidates of one call, all on the same arrays.

    Before each verified run every array and its guards are restored; a timed run finds what the run
    before it left.
    """

    def __init__(self, session: Session, work: Workload) -> None:
        """Allocates the arrays.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        super().__init__(session)
        self._arrays = GuardedArrays(session, work)

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """Verifies, then times; few samples if clearly slower than the best by the objective."""
        ready = self._prepared(candidate)
        if isinstance(ready, Failure):
            return ready
        return self._guarded(lambda: self._timed(ready, best, objective))

    def rematch(self, candidates: Sequence[Candidate], with_baseline: bool) -> Rematch:
        """Verifies all candidates, then times them interleaved."""
        del with_baseline
        return self._interleaved([self._prepared(candidate) for candidate in candidates]), None

    def energies(self, candidates: Sequence[Candidate], with_baseline: bool) -> Energies | str:
        """Verifies all candidates, then measures the energy of each."""
        del with_baseline
        energies = self._metered([self._prepared(candidate) for candidate in candidates])
        return energies if isinstance(energies, str) else (energies, None)

    def examine(self, candidate: Candidate) -> Failure | None:
        """Verifies a winner once more, after it was timed beside others."""
        ready = self._prepared(candidate)
        return ready if isinstance(ready, Failure) else None

    def results(self, candidate: Candidate) -> list[NDArray[Any]] | Failure:
        """The contents that a run leaves in each array; it is compared with nothing."""

        def run() -> list[NDArray[Any]] | Failure:
            enqueue = self._session.bind(candidate)(self._arrays.values)
            self._arrays.restore()
            enqueue()
            self._session.synchronize()
            return self._arrays.contents()

        return self._guarded(run)

    def baseline(self) -> Measurement | None:
        """None: no library has this kernel."""
        return None

    def _prepared(self, candidate: Candidate) -> Ready | Failure:
        def prepared() -> Ready | Failure:
            run = self._session.bind(candidate)(self._arrays.values)
            verdict = self._verdict(run)
            return verdict if isinstance(verdict, Failure) else (run, verdict)

        return self._guarded(prepared)

    def _verdict(self, run: Run) -> Verdict | Failure:
        comparisons: list[Comparison] = []
        marks = []
        for _ in range(RUNS):
            self._arrays.restore()
            start = self._session.mark()
            run()
            marks.append((start, self._session.mark()))
            self._session.synchronize()
            judged = self._arrays.judged()
            if isinstance(judged, Failure):
                return judged
            comparisons = judged
        worst = max(comparisons, key=_error_share)
        difference = sum(comparison.difference for comparison in comparisons)
        square = sum(comparison.square for comparison in comparisons)
        return Verdict(
            error=worst.error,
            tolerance=worst.allowed,
            relative=math.sqrt(difference / square) if square else 0.0,
            time_us=min(1e3 * start.time_till(end) for start, end in marks),
        )


def _error_share(comparison: Comparison) -> float:
    """The error as a share of what is allowed."""
    return comparison.error / comparison.allowed if comparison.allowed else 0.0
