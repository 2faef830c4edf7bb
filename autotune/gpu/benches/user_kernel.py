"""What the worker does with one kernel of the user's on one GPU: verify candidates, time them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.gpu.arrays import Slots
from autotune.gpu.benches.base import BaseBench, Ready, Rematch
from autotune.gpu.session import Run, Session
from autotune.gpu.verify import Verdict
from autotune.gpu.worker import Opening
from autotune.runners.base import Candidate, Failure, Measurement, Objective
from autotune.user_kernels.comparison import Comparison
from autotune.user_kernels.workload import Workload

RUNS = 2
"""What is only right the first time is wrong; and the second has nothing left to load."""


def open_bench(work: Workload, index: int) -> Opening:
    """The bench of a worker process; the session stays open until the process ends."""
    session = Session(index)
    return Opening(session.device, session.driver, lambda: KernelBench(session.__enter__(), work))


class KernelBench(BaseBench):
    """Verifies and times candidates of one call, all on the same arrays.

    Before each verified run every array and its guards are made anew; a run that is timed finds
    what the one before it left.
    """

    def __init__(self, session: Session, work: Workload) -> None:
        """Allocates the arrays.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        super().__init__(session)
        self._slots = Slots(session, work)

    def measure(
        self, candidate: Candidate, best_us: float | None, objective: Objective = "hot"
    ) -> Measurement | Failure:
        """Verifies, then times, with few samples if clearly slower than `best_us`, which is a time
        of the objective."""
        ready = self._prepared(candidate)
        if isinstance(ready, Failure):
            return ready
        return self._guarded(lambda: self._timed(ready, best_us, objective))

    def rematch(self, candidates: Sequence[Candidate], against_vendor: bool) -> Rematch:
        """Verifies all, then times them interleaved."""
        del against_vendor
        return self._raced([self._prepared(one) for one in candidates]), None

    def baseline(self) -> Measurement | None:
        """None: nobody else has this kernel."""
        return None

    def _prepared(self, candidate: Candidate) -> Ready | Failure:
        def prepared() -> Ready | Failure:
            run = self._session.bind(candidate)(self._slots.values)
            verdict = self._verdict(run)
            return verdict if isinstance(verdict, Failure) else (run, verdict)

        return self._guarded(prepared)

    def _verdict(self, run: Run) -> Verdict | Failure:
        comparisons: list[Comparison] = []
        marks = []
        for _ in range(RUNS):
            self._slots.restore()
            began = self._session.mark()
            run()
            marks.append((began, self._session.mark()))
            self._session.synchronize()
            judged = self._slots.judged()
            if isinstance(judged, Failure):
                return judged
            comparisons = judged
        worst = max(comparisons, key=lambda one: one.error / one.allowed if one.allowed else 0.0)
        difference = sum(one.difference for one in comparisons)
        square = sum(one.square for one in comparisons)
        return Verdict(
            error=worst.error,
            tolerance=worst.allowed,
            relative=math.sqrt(difference / square) if square else 0.0,
            time_us=min(1e3 * began.time_till(ended) for began, ended in marks),
        )
