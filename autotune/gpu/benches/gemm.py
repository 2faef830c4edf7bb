"""What the worker does with one problem on one GPU: verify candidates, time them."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path

from autotune import settings
from autotune.gpu.benches.base import BaseBench, Ready, Rematch
from autotune.gpu.operands import Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.vendor_library import baseline
from autotune.gpu.verify import LIBRARY, Verdict, Verifier
from autotune.gpu.worker import Opening
from autotune.problem import Problem
from autotune.runners.base import Candidate, Failure, Measurement, Objective
from autotune.verification.accuracy import inaccuracy

VENDOR = "vendor"
"""The baseline's name in a comparison."""


def open_bench(problem: Problem, index: int) -> Opening:
    """The bench of the worker process that measures; it never loads the vendor's library."""
    session = Session(index)

    def stand() -> GemmBench:
        bench = GemmBench(session.__enter__(), problem, cache=settings.cache_dir())
        bench.warm_up()
        return bench

    return Opening(session.device, session.driver, stand)


class GemmBench(BaseBench):
    """Verifies and times candidates of one problem, all on the same random operands; a rematch and
    a comparison begin with new ones."""

    def __init__(
        self,
        session: Session,
        problem: Problem,
        *,
        leading_dimensions: tuple[int, int, int] | None = None,
        strides: tuple[int, int, int] | None = None,
        cache: Path | None,
    ) -> None:
        """Allocates the operands and loads the verification kernels, compiled through `cache`.

        Raises:
            RunnerError: if the device has too little free memory.
            MissingError: without a compiler.
        """
        super().__init__(session)
        self._cache = cache
        self.operands = Operands(session, problem, leading_dimensions, strides)
        self._verifier = Verifier(session, self.operands, cache)

    def turn_to(self, problem: Problem) -> None:
        """Takes up another problem, on operands without gaps.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        del self.operands, self._verifier
        self.__dict__.pop("_vendor", None)
        gc.collect()  # their memory is needed
        self.operands = Operands(self._session, problem)
        self._verifier = Verifier(self._session, self.operands, self._cache)
        self.warm_up()

    def warm_up(self) -> None:
        """Draws operands and has the device compute the reference."""
        self._verifier.refresh()

    def verify(self, candidate: Candidate) -> Verdict | Failure:
        """Verifies without timing: once with and once without C as an input."""
        ready = self._prepared(candidate, None)
        return ready if isinstance(ready, Failure) else ready[1]

    def measure(
        self, candidate: Candidate, best_us: float | None, objective: Objective = "hot"
    ) -> Measurement | Failure:
        """Verifies, then times, with few samples if clearly slower than `best_us`, which is a time
        of the objective."""
        ready = self._prepared(candidate, None)
        if isinstance(ready, Failure):
            return ready
        return self._guarded(lambda: self._timed(ready, best_us, objective))

    def rematch(self, candidates: Sequence[Candidate], against_vendor: bool) -> Rematch:
        """Verifies all, then times them interleaved, the vendor's library too if asked for."""
        self._begin(candidates)
        vendor = self._verified_vendor() if against_vendor else None
        bound = vendor[1].relative if vendor else None
        ready = [self._prepared(one, bound) for one in candidates]
        outcomes = self._raced([*ready, *([vendor] if vendor else [])])
        theirs = outcomes.pop() if vendor else None
        return outcomes, theirs if isinstance(theirs, Measurement) else None

    def compare(
        self, candidates: Sequence[Candidate], rivals: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        """Verifies and times interleaved: the candidates under the texts of their configurations,
        the vendor's library as `VENDOR`, and rivals under their own names.

        A rival is opened by `module:function`, called with the session and the operands; it returns
        pairs of a name and a run, which computes the problem at alpha = 1 and beta = 0. Accuracies
        are reported and not judged.
        """
        self._begin(candidates)
        ready = {str(one.config): self._prepared(one, None) for one in candidates}
        runs = [(VENDOR, self._vendor)] if self._vendor else []
        for factory in rivals:
            module, _, function = factory.partition(":")
            runs += getattr(import_module(module), function)(self._session, self.operands)
        ready |= {name: self._verified(run) for name, run in runs}
        return dict(zip(ready, self._raced(list(ready.values())), strict=True))

    def baseline(self) -> Measurement | None:
        """The vendor library's time; None where PyTorch and CuPy are missing or miss fp32."""
        ready = self._verified_vendor()
        return self._timed(ready, None) if ready else None

    @cached_property
    def _vendor(self) -> Run | None:
        return baseline(self._session, self.operands)

    def _begin(self, candidates: Sequence[Candidate]) -> None:
        """New operands, and room for all that is going to run by turns."""
        plans = [one.plan for one in candidates]
        self.operands.reserve(
            max((plan.workspace for plan in plans), default=0),
            max((plan.counters for plan in plans), default=0),
        )
        self._verifier.refresh()

    def _prepared(self, candidate: Candidate, vendor_error: float | None) -> Ready | Failure:
        def prepared() -> Ready | Failure:
            self.operands.reserve(candidate.plan.workspace, candidate.plan.counters)
            bound = self._session.bind(candidate)
            verdict = self._verifier.verify(bound)
            if isinstance(verdict, Failure):
                return verdict
            inaccurate = inaccuracy(self.operands.problem, verdict.relative, vendor_error)
            return inaccurate or (bound(self.operands.values(1.0, 0.0)), verdict)

        return self._guarded(prepared)

    def _verified(self, run: Run) -> Ready | Failure:
        verdict = self._guarded(lambda: self._verifier.verify(lambda _: run, LIBRARY))
        return verdict if isinstance(verdict, Failure) else (run, verdict)

    def _verified_vendor(self) -> Ready | None:
        ready = self._verified(self._vendor) if self._vendor else None
        return None if isinstance(ready, Failure) else ready

    def _raced(self, entries: Sequence[Ready | Failure]) -> list[Measurement | Failure]:
        """Measurements of what was verified, timed interleaved; failures as they are."""
        self.operands.clear_counters()
        return super()._raced(entries)
