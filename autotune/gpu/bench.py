"""What the worker does with one problem on one GPU: verify candidates, time them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from pathlib import Path
from typing import TypeVar

from autotune import settings
from autotune.device import Device
from autotune.gpu.baseline import baseline
from autotune.gpu.operands import Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.timing import Samples, Timer
from autotune.gpu.verify import SCALINGS, Verdict, Verifier
from autotune.problem import Problem
from autotune.runner import Candidate, Failure, Measurement
from autotune.stats import Estimate

T = TypeVar("T")

Rematch = tuple[list[Measurement | Failure], Measurement | None]
"""The candidates' measurements in their order, and the baseline's."""


def open_bench(problem: Problem, index: int) -> Bench:
    """The bench of a worker process; the session stays open until the process ends."""
    return Bench(Session(index).__enter__(), problem, cache=settings.cache_dir())


class Bench:
    """Verifies and times candidates of one problem, each on fresh random operands.

    What leaves the CUDA context intact comes back as a `Failure`. What breaks it (an illegal
    access) surfaces as PyCUDA's `Error`, and the process is of no further use.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        *,
        leading_dimensions: tuple[int, int, int] | None = None,
        cache: Path | None,
    ) -> None:
        """Allocates the operands and loads the verification kernels, compiled through `cache`.

        Raises:
            RunnerError: if the device has too little free memory.
            MissingError: without a compiler.
        """
        self._session = session
        self.operands = Operands(session, problem, leading_dimensions)
        self._verifier = Verifier(session, self.operands, cache)
        self._timer = Timer(session)

    def warm_up(self) -> None:
        """Imports the vendor's library, which takes seconds. `baseline` shows what goes wrong."""
        with suppress(Exception):
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
        """Verifies without timing: once without and once with C as an input."""
        prepared = self._guarded(lambda: self._prepared(candidate))
        return prepared if isinstance(prepared, Failure) else prepared[1]

    def measure(self, candidate: Candidate, best_us: float | None) -> Measurement | Failure:
        """Verifies, then times, with few samples if clearly slower than `best_us`."""

        def measured() -> Measurement | Failure:
            prepared = self._prepared(candidate)
            if isinstance(prepared, Failure):
                return prepared
            run, verdict = prepared
            return _measurement(self._timer.time(run, best_us), verdict)

        return self._guarded(measured)

    def rematch(self, candidates: Sequence[Candidate], against_vendor: bool) -> Rematch:
        """Verifies all, then times them interleaved, the vendor's library too if asked for."""
        self.operands.reserve(max((one.plan.workspace for one in candidates), default=0))
        prepared = [self._guarded(partial(self._prepared, one)) for one in candidates]
        ready = [one for one in prepared if not isinstance(one, Failure)]
        vendor = self._prepared_vendor() if against_vendor else None
        samples = self._timer.interleave(
            [run for run, _ in [*ready, *([vendor] if vendor else [])]]
        )
        remaining = iter(samples)
        outcomes = [
            one if isinstance(one, Failure) else _measurement(next(remaining), one[1])
            for one in prepared
        ]
        return outcomes, _measurement(next(remaining), vendor[1]) if vendor else None

    def baseline(self) -> Measurement | None:
        """The vendor library's time; None where PyTorch and CuPy are missing or miss fp32."""
        prepared = self._prepared_vendor()
        if prepared is None:
            return None
        run, verdict = prepared
        return _measurement(self._timer.time(run, None), verdict)

    @cached_property
    def _vendor(self) -> Run | None:
        return baseline(self._session, self.operands)

    def _prepared(self, candidate: Candidate) -> tuple[Run, Verdict] | Failure:
        self.operands.reserve(candidate.plan.workspace)
        bound = self._session.bind(candidate)
        verdict = self._verifier.verify(bound)
        if isinstance(verdict, Failure):
            return verdict
        return bound(self.operands.values(1.0, 0.0)), verdict

    def _prepared_vendor(self) -> tuple[Run, Verdict] | None:
        run = self._vendor
        if run is None:
            return None
        verdict = self._verifier.verify(lambda _: run, SCALINGS[:1])
        return None if isinstance(verdict, Failure) else (run, verdict)

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
    )
