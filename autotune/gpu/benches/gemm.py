"""The bench of one problem on one GPU: verifies candidates and times them."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import astuple
from functools import cached_property
from importlib import import_module
from pathlib import Path

from autotune import settings
from autotune.errors import RunnerError
from autotune.families.plan import Alignment
from autotune.gpu.benches.base import BaseBench, Energies, Ready, Rematch
from autotune.gpu.judgement import Verdict
from autotune.gpu.opening import open_session
from autotune.gpu.operands import Operands
from autotune.gpu.padded_run import PaddedRun
from autotune.gpu.requirements import LIBRARY, THOROUGH
from autotune.gpu.row_bits import RowBits
from autotune.gpu.session import Run, Session
from autotune.gpu.vendor_baseline import OpenBaseline, open_baseline
from autotune.gpu.verify import Verifier
from autotune.gpu.worker import PendingBench
from autotune.problem import Problem
from autotune.runners.base import BestTimes, Candidate, Failure, Measurement, RowReference
from autotune.runners.energy import Energy
from autotune.runners.objective import HOT, Objective
from autotune.verification.accuracy import inaccuracy

BASELINE = "vendor"
"""The vendor baseline's name in a comparison."""

LEADER = (4, 50), 20_000.0
"""Fewest and most launches of a leader that have to agree, and the microseconds that decide."""

GAP = 3
"""Gap between rows of a winner's operands, in vectors of the widest kind that their rows allow."""

WINNER = (50, 800), 300_000.0
"""The same of the winner. 800 launches find 99.97 % of races that are lost once in a hundred."""


def open_bench(problem: Problem, index: int) -> PendingBench:
    """Opens the bench of the measuring worker, which never loads the vendor library."""
    session = open_session(index)

    def finish() -> GemmBench:
        bench = GemmBench(session.__enter__(), problem, cache=settings.cache_dir())
        bench.warm_up()
        return bench

    return PendingBench(session.device, session.driver, finish)


class GemmBench(BaseBench):
    """Verifies and times candidates of one problem on the same random operands.

    A rematch and a comparison begin with new operands.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        *,
        leading_dimensions: tuple[int, int, int] | None = None,
        strides: tuple[int, int, int] | None = None,
        cache: Path | None,
        opener: OpenBaseline | None = None,
    ) -> None:
        """Allocates the operands and loads the verification kernels, compiled through `cache`.

        Raises:
            RunnerError: if the device has too little free memory.
            MissingError: without a compiler.
        """
        super().__init__(session)
        self._cache, self._opener = cache, opener
        self.operands = Operands(session, problem, leading_dimensions, strides)
        self._verifier = Verifier(session, self.operands, cache)

    def switch_to(self, problem: Problem) -> None:
        """Takes up another problem, on operands without gaps.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        del self.operands, self._verifier
        self.__dict__.pop("_baseline", None)
        gc.collect()  # frees their memory
        self.operands = Operands(self._session, problem)
        self._verifier = Verifier(self._session, self.operands, self._cache)
        self.warm_up()

    def warm_up(self) -> None:
        """Draws operands and enqueues the reference."""
        self._verifier.refresh()

    def verify(self, candidate: Candidate) -> Verdict | Failure:
        """Verifies without timing, once with and once without C as an input."""
        ready = self._prepared(candidate, None)
        return ready if isinstance(ready, Failure) else ready[1]

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """Verifies, times, and looks at C once more.

        Takes few samples if clearly slower than the best by the objective.
        """
        ready = self._prepared(candidate, None)
        if isinstance(ready, Failure):
            return ready

        def timed() -> Measurement | Failure:
            measurement = self._timed(ready, best, objective)
            return self._verifier.recheck() or measurement

        return self._guarded(timed)

    def rematch(self, candidates: Sequence[Candidate], with_baseline: bool) -> Rematch:
        """Verifies all candidates, then times them interleaved, on request with the baseline.

        Verified are also many launches of each, which have to agree bit for bit.
        """
        self._begin(candidates)
        baseline = self._verified_baseline() if with_baseline else None
        error = baseline[1].relative if isinstance(baseline, tuple) else None
        ready = [self._prepared(candidate, error, LEADER) for candidate in candidates]
        if baseline is None:
            return self._interleaved(ready), None
        *outcomes, timed = self._interleaved([*ready, baseline])
        return outcomes, timed

    def energies(self, candidates: Sequence[Candidate], with_baseline: bool) -> Energies | str:
        """Verifies all candidates, then measures the energy of each, on request of the baseline."""
        self._begin(candidates)
        baseline = self._verified_baseline() if with_baseline else None
        ready = [self._prepared(candidate, None) for candidate in candidates]
        self.operands.clear_counters()
        energies = self._metered([*ready, *([] if baseline is None else [baseline])])
        if isinstance(energies, str):
            return energies
        own = None if baseline is None else energies.pop()
        return energies, own if isinstance(own, Energy) else None

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        """Verifies and times interleaved: candidates, vendor baseline, further baselines.

        Candidates are named by the texts of their configurations, the vendor baseline is
        `BASELINE`. Each of `baselines` is the `module:function` of a factory, which is called with
        the session and the operands and returns pairs of a name and a run, which computes the
        problem at alpha = 1 and beta = 0. Accuracies are reported and not judged.
        """
        self._begin(candidates)
        ready = {str(item.config): self._prepared(item, None) for item in candidates}
        runs = [(BASELINE, self._baseline)] if self._baseline else []
        for factory in baselines:
            module, _, function = factory.partition(":")
            runs += getattr(import_module(module), function)(self._session, self.operands)
        ready |= {name: self._verified(run) for name, run in runs}
        return dict(zip(ready, self._interleaved(list(ready.values())), strict=True))

    def examine(self, candidate: Candidate) -> Failure | None:
        """Verifies a winner: operands with gaps, special values, hundreds of launches.

        The gaps keep the alignment of the operands. Without memory for them, there are none.
        """

        ready = self._prepared(candidate, None, WINNER)
        if isinstance(ready, Failure):
            return ready
        return self._guarded(lambda: self._thorough(candidate))

    def baseline(self) -> Measurement | Failure | None:
        """The vendor baseline's time, or why its result is refused; None if neither PyTorch nor
        CuPy can compute the problem."""
        ready = self._verified_baseline()
        return ready if ready is None or isinstance(ready, Failure) else self._timed(ready, None)

    @cached_property
    def _baseline(self) -> Run | None:
        opener = self._opener or open_baseline
        return opener(self._session, self.operands)

    def _begin(self, candidates: Sequence[Candidate]) -> None:
        """Draws new operands and reserves workspace for all candidates that take turns."""
        references = [candidate.rows.candidate for candidate in candidates if candidate.rows]
        plans = [candidate.plan for candidate in (*candidates, *references)]
        self.operands.reserve(
            max((plan.workspace for plan in plans), default=0),
            max((plan.counters for plan in plans), default=0),
        )
        self._verifier.refresh()

    def _prepared(
        self,
        candidate: Candidate,
        baseline_error: float | None,
        repeats: tuple[tuple[int, int], float] | None = None,
    ) -> Ready | Failure:
        """A verified run, if asked for by many launches too: `LEADER` or `WINNER`."""

        def prepared() -> Ready | Failure:
            self.operands.reserve(candidate.plan.workspace, candidate.plan.counters)
            bound = self._session.bind(candidate)
            verdict = self._verifier.verify(bound)
            if isinstance(verdict, Failure):
                return verdict
            failure = inaccuracy(self.operands.problem, verdict.relative, baseline_error)
            if candidate.rows and not failure:
                failure = self._compare_rows(candidate, candidate.rows)
            if repeats and not failure:
                failure = self._verifier.repeat(bound, _launches(*repeats, verdict.time_us))
            return failure or (bound(self.operands.values(1.0, 0.0)), verdict)

        return self._guarded(prepared)

    def _compare_rows(self, candidate: Candidate, reference: RowReference) -> Failure | None:
        """Compares rows of the C that a verified candidate has left with those of another."""
        failure = RowBits(self._session, self.operands).fault(reference)
        self.operands.reserve(candidate.plan.workspace, candidate.plan.counters)
        self._verifier.clear_scratch()
        return failure

    def _thorough(self, candidate: Candidate) -> Failure | None:
        """Verifies on operands with gaps, for as long as these exist."""
        problem, plan = self.operands.problem, candidate.plan
        widths = astuple(Alignment.dense(problem))
        dense = problem.leading_dimensions
        gapped = [ld + GAP * width for ld, width in zip(dense, widths, strict=True)]
        try:
            operands = Operands(self._session, problem, (gapped[0], gapped[1], gapped[2]))
            operands.reserve(plan.workspace, plan.counters)
            verifier = Verifier(self._session, operands, self._cache)
        except (RunnerError, self._session.MemoryError):
            verifier = self._verifier
        verdict = verifier.verify(self._session.bind(candidate), THOROUGH)
        return verdict if isinstance(verdict, Failure) else None

    def _verified(self, run: Run) -> Ready | Failure:
        whole = run.whole if isinstance(run, PaddedRun) else run

        def verified() -> Verdict | Failure:
            try:
                return self._verifier.verify(lambda _: whole, LIBRARY)
            except RuntimeError as error:
                if isinstance(error, self._session.Error):
                    raise
                return Failure("launch", str(error).partition("\n")[0])

        verdict = self._guarded(verified)
        return verdict if isinstance(verdict, Failure) else (run, verdict)

    def _verified_baseline(self) -> Ready | Failure | None:
        """The baseline's verified run, or why its result is wrong; None if it computes none."""
        ready = self._verified(self._baseline) if self._baseline else None
        return None if isinstance(ready, Failure) and ready.stage == "launch" else ready

    def _interleaved(self, entries: Sequence[Ready | Failure]) -> list[Measurement | Failure]:
        """Measurements of the verified runs, timed interleaved; failures as they are."""
        self.operands.clear_counters()
        return super()._interleaved(entries)


def _launches(limits: tuple[int, int], device_us: float, each_us: float) -> int:
    """An even number of launches of `each_us` that take `device_us`, within the limits."""
    low, high = limits
    return max(low, min(high, 2 * int(device_us / each_us / 2)))
