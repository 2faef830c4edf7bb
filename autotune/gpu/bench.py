"""What the worker does with one problem on one GPU: verify candidates, time them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TypeVar

from autotune import reference, settings
from autotune.device import Device
from autotune.gpu.baseline import baseline
from autotune.gpu.operands import Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.timing import Contestant, Samples, Timer
from autotune.gpu.verify import PLAIN, Verdict, Verifier
from autotune.problem import Problem
from autotune.runner import Candidate, Failure, Measurement
from autotune.stats import Estimate

T = TypeVar("T")

Ready = tuple[Run, Verdict]
"""A run that was verified."""

Rematch = tuple[list[Measurement | Failure], Measurement | None]
"""The candidates' measurements in their order, and the baseline's."""

VENDOR = "vendor"
"""The baseline's name in a comparison."""


def open_bench(problem: Problem, index: int) -> Bench:
    """The bench of a worker process; the session stays open until the process ends."""
    return Bench(Session(index).__enter__(), problem, cache=settings.cache_dir())


class Bench:
    """Verifies and times candidates of one problem, all on the same random operands; a rematch and
    a comparison begin with new ones.

    What leaves the CUDA context intact comes back as a `Failure`. What breaks it (an illegal
    access) surfaces as PyCUDA's `Error`, and the process is of no further use.
    """

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
        self._session = session
        self.operands = Operands(session, problem, leading_dimensions, strides)
        self._verifier = Verifier(session, self.operands, cache)
        self._timer = Timer(session)

    def warm_up(self) -> None:
        """Draws operands and imports the vendor's library, which takes seconds; meanwhile the
        device computes the reference. Whoever needs either of them sees what goes wrong."""
        with suppress(Exception):
            self._verifier.refresh()
            _ = self._vendor

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._session.device

    @property
    def driver(self) -> str:
        """The CUDA version of the driver, such as `13.0`."""
        return self._session.driver

    def verify(self, candidate: Candidate) -> Verdict | Failure:
        """Verifies without timing: once with and once without C as an input."""
        ready = self._prepared(candidate, None)
        return ready if isinstance(ready, Failure) else ready[1]

    def measure(
        self, candidate: Candidate, best_us: float | None, vendor_error: float | None
    ) -> Measurement | Failure:
        """Verifies, then times, with few samples if clearly slower than `best_us`.

        One that is less accurate than `vendor_error`, the vendor's relative error, allows is not
        timed.
        """
        ready = self._prepared(candidate, vendor_error)
        if isinstance(ready, Failure):
            return ready
        return self._guarded(
            lambda: _measurement(self._timer.time(_contestant(ready), best_us), ready[1])
        )

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
        if ready is None:
            return None
        return _measurement(self._timer.time(_contestant(ready), None), ready[1])

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
            inaccurate = _inaccurate(self.operands.problem, verdict, vendor_error)
            return inaccurate or (bound(self.operands.values(1.0, 0.0)), verdict)

        return self._guarded(prepared)

    def _verified(self, run: Run) -> Ready | Failure:
        verdict = self._guarded(lambda: self._verifier.verify(lambda _: run, PLAIN))
        return verdict if isinstance(verdict, Failure) else (run, verdict)

    def _verified_vendor(self) -> Ready | None:
        ready = self._verified(self._vendor) if self._vendor else None
        return None if isinstance(ready, Failure) else ready

    def _raced(self, entries: Sequence[Ready | Failure]) -> list[Measurement | Failure]:
        """Measurements of what was verified, timed interleaved; failures as they are."""
        self.operands.clear_counters()
        racing = [_contestant(one) for one in entries if not isinstance(one, Failure)]
        samples = iter(self._timer.interleave(racing))
        return [
            one if isinstance(one, Failure) else _measurement(next(samples), one[1])
            for one in entries
        ]

    def _guarded(self, attempt: Callable[[], T]) -> T | Failure:
        try:
            return attempt()
        except self._session.cuda.Error as error:
            if self._session.broken():
                raise
            return Failure("launch", str(error))


def _measurement(samples: Samples, verdict: Verdict) -> Measurement:
    hot = Estimate.of(samples.hot)
    return Measurement(
        time_us=hot.median,
        spread_us=hot.spread,
        samples=hot.samples,
        cold_us=Estimate.of(samples.cold).median if samples.cold else None,
        error=verdict.error,
        tolerance=verdict.tolerance,
        relative_error=verdict.relative,
    )


def _contestant(ready: Ready) -> Contestant:
    run, verdict = ready
    return Contestant(run, verdict.time_us)


def _inaccurate(problem: Problem, verdict: Verdict, vendor: float | None) -> Failure | None:
    bound = reference.relative_bound(problem, vendor)
    if vendor is None or verdict.relative <= bound:
        return None
    times = f"{verdict.relative / vendor:.1f} times" if vendor else "more than"
    return Failure(
        "accuracy",
        f"relative error {verdict.relative:.2g} is {times} the vendor library's {vendor:.2g}; "
        f"{bound:.2g} is allowed",
    )
