"""The benches of worker processes: verify candidates, time them, turn failures into values."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, replace
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import TypeVar

from autotune import settings
from autotune.cuda import cublaslt
from autotune.device import Device
from autotune.errors import MissingError, RunnerError
from autotune.families.config import Config
from autotune.families.cublaslt import config_of, fault
from autotune.families.plan import Alignment, LibraryCall
from autotune.measure.baseline import (
    OpenBaseline,
    PaddedRun,
    import_library,
    open_baseline,
    open_quick_baseline,
)
from autotune.measure.energy import EnergyMeter, open_counter
from autotune.measure.measurement import Energy, Estimate, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.operands import Operands, operand_bytes, row_fault
from autotune.measure.oracle import inaccuracy
from autotune.measure.runner import Candidate, RowReference
from autotune.measure.session import Run, Session, open_session
from autotune.measure.timing import HOST_US, LIBRARY_US, Samples, Timer, WarmRun
from autotune.measure.verify import LIBRARY, THOROUGH, Passed, Verifier
from autotune.measure.worker import PendingBench
from autotune.problem import Problem
from autotune.problem.vendor_faults import known_fault

T = TypeVar("T")

BASELINE = "vendor"
"""The vendor baseline's name in a comparison."""

UNKNOWN = "of unknown version"
"""The version of a library that does not state it."""

LEADER = (4, 50), 20_000.0
"""Fewest and most launches of a leader that have to agree, and the microseconds that decide."""

GAP = 3
"""Gap between rows of a winner's operands, in vectors of the widest kind that their rows allow."""

WINNER = (50, 800), 300_000.0
"""Fewest and most launches of the winner, and the microseconds that decide: 800 launches find
99.97 % of races that are lost once in a hundred."""

LIBRARY_BYTES = 2**30
"""Device memory left to the library for its kernels and its workspace, generously: making room
needlessly costs the start of a process, too little memory costs the request."""

Ready = tuple[Run, Passed]
"""A verified run."""

Rematch = tuple[list[Measurement | Failure], Measurement | Failure | None]
"""The candidates' outcomes in their order, and the baseline's."""

Energies = tuple[list[Energy | Failure], Energy | None]
"""The candidates' energies in their order, and the baseline's."""


class BaseBench:
    """The part of a bench that does not depend on what is computed.

    An error that leaves the CUDA context intact is a `Failure`. One that breaks it (an illegal
    access) is raised as the session's `Error`, and the process has to end.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timer = Timer(session)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._session.device

    def _timed(
        self,
        ready: Ready,
        best: BestTimes | None,
        objective: Objective = HOT,
        host_us: float = HOST_US,
    ) -> Measurement:
        """A measurement, with few samples if it is clearly slower than the best."""
        warm = _warm(ready, host_us)
        return _measurement(self._timer.time(warm, best, objective), ready[1])

    def _interleaved(self, entries: Sequence[Ready | Failure]) -> list[Measurement | Failure]:
        """Measurements of the verified runs, timed interleaved; failures as they are."""
        warm_runs = [_warm(entry) for entry in entries if not isinstance(entry, Failure)]
        samples = iter(self._timer.interleave(warm_runs))
        return [
            entry if isinstance(entry, Failure) else _measurement(next(samples), entry[1])
            for entry in entries
        ]

    def rematch(
        self, candidates: Sequence[Candidate], with_baseline: bool, deadline: float = math.inf
    ) -> Rematch:
        """Verifies all candidates, then times them interleaved, on request with the baseline, and
        with fewer samples if a deadline by `time.monotonic` is near."""
        self._timer.deadline = deadline
        ready, baseline = self._verified_together(candidates, with_baseline, leaders=True)
        if baseline is None:
            return self._interleaved(ready), None
        *outcomes, timed = self._interleaved([*ready, baseline])
        return outcomes, timed

    def energy_fault(self) -> str | None:
        """Why there are no energies; None if there are."""
        try:
            open_counter(self._session.pci_address())
        except MissingError as error:
            return str(error)
        return None

    def energies(self, candidates: Sequence[Candidate], with_baseline: bool) -> Energies | str:
        """Verifies all candidates, then measures the energy of each, on request of the baseline.

        A text says why the counter fails, which no candidate is to blame for.
        """
        ready, baseline = self._verified_together(candidates, with_baseline, leaders=False)
        entries = [*ready, *([] if baseline is None else [baseline])]
        runs = [_warm(entry) for entry in entries if not isinstance(entry, Failure)]
        try:
            counter = open_counter(self._session.pci_address())
            measured = iter(EnergyMeter(self._session, self._timer, counter).measure(runs))
        except (MissingError, RunnerError) as error:
            return str(error)
        energies = [entry if isinstance(entry, Failure) else next(measured) for entry in entries]
        own = None if baseline is None else energies.pop()
        return energies, own if isinstance(own, Energy) else None

    def _verified_together(
        self, candidates: Sequence[Candidate], with_baseline: bool, leaders: bool
    ) -> tuple[list[Ready | Failure], Ready | Failure | None]:
        """The verified runs of candidates that take turns, of leaders more thoroughly, and that of
        the baseline."""
        raise NotImplementedError

    def _guarded(self, attempt: Callable[[], T]) -> T | Failure:
        try:
            return attempt()
        except self._session.Error as error:
            if self._session.broken():
                raise
            return Failure("launch", str(error))


def _measurement(samples: Samples, passed: Passed) -> Measurement:
    hot = Estimate.of(samples.hot)
    cold = Estimate.of(samples.cold) if samples.cold else None
    return Measurement(
        time_us=hot.median,
        spread_us=hot.spread,
        samples=hot.samples,
        cold_us=cold.median if cold else None,
        cold_spread_us=cold.spread if cold else None,
        error=passed.error,
        tolerance=passed.tolerance,
        relative_error=passed.relative,
        library=passed.library,
    )


def _warm(ready: Ready, host_us: float = HOST_US) -> WarmRun:
    run, passed = ready
    return WarmRun(run, passed.time_us, host_us)


def open_bench(problem: Problem, index: int) -> PendingBench:
    """Opens the bench of the measuring worker, which loads no vendor library but cuBLASLt."""
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

    def algorithms(self) -> list[Config]:
        """The algorithms of cuBLASLt's heuristic for the problem, the best expected first; none
        where it is not installed or serves no such problem."""
        problem = self.operands.problem
        if fault(problem):
            return []
        try:
            listed = self._session.cublaslt.heuristic(problem)
        except (MissingError, RunnerError):
            return []
        return [config_of(*each) for each in listed]

    def verify(self, candidate: Candidate) -> Passed | Failure:
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

        host_us = LIBRARY_US if candidate.plan.library else HOST_US

        def timed() -> Measurement | Failure:
            measurement = self._timed(ready, best, objective, host_us)
            return self._verifier.recheck() or measurement

        return self._guarded(timed)

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        """Verifies and times interleaved: candidates, vendor baseline, further baselines.

        Candidates are named by the texts of their configurations, the vendor baseline is
        `BASELINE`. Each of `baselines` is the `module:function` of a factory, which is called with
        the session and the operands and returns pairs of a name and a run, which computes the
        problem at alpha = 1 and beta = 0. Accuracies are reported, not checked.
        """
        self._begin(candidates)
        ready = {str(item.config): self._prepared(item, None) for item in candidates}
        ready |= self._verified_libraries(baselines)
        self.operands.clear_counters()
        return dict(zip(ready, self._interleaved(list(ready.values())), strict=True))

    def verify_libraries(self, baselines: Sequence[str]) -> dict[str, Passed | Failure]:
        """Verifies, without timing, the vendor baseline and further baselines, named as by
        `compare`; none if nothing computes the problem."""
        outcomes = self._verified_libraries(baselines)
        return {
            name: outcome if isinstance(outcome, Failure) else outcome[1]
            for name, outcome in outcomes.items()
        }

    def _verified_libraries(self, baselines: Sequence[str]) -> dict[str, Ready | Failure]:
        """The verified runs of the vendor baseline and of the factories of further baselines."""
        ready: dict[str, Ready | Failure] = {}
        if self._baseline:
            ready[BASELINE] = self._verified(self._baseline, cublaslt.version())
        for factory in baselines:
            runs = resolve_name(factory)(self._session, self.operands)
            ready |= {name: self._verified(run) for name, run in runs}
        return ready

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
        cuBLAS itself computes the problem."""
        ready = self._verified_baseline()
        return ready if ready is None or isinstance(ready, Failure) else self._timed(ready, None)

    @cached_property
    def _baseline(self) -> Run | None:
        opener = self._opener or open_baseline
        return opener(self._session, self.operands)

    def _verified_together(
        self, candidates: Sequence[Candidate], with_baseline: bool, leaders: bool
    ) -> tuple[list[Ready | Failure], Ready | Failure | None]:
        """The verified runs on new operands; many launches of a leader have to agree bit for bit,
        and its accuracy is compared with the baseline's."""
        self._begin(candidates)
        baseline = self._verified_baseline() if with_baseline else None
        error = baseline[1].relative if leaders and isinstance(baseline, tuple) else None
        repeats = LEADER if leaders else None
        ready = [self._prepared(candidate, error, repeats) for candidate in candidates]
        self.operands.clear_counters()
        return ready, baseline

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
            library = candidate.plan.library
            if library and (failure := self._library_failure(library)):
                return failure
            self.operands.reserve(candidate.plan.workspace, candidate.plan.counters)
            bound = self._session.bind(candidate)
            passed = self._verifier.verify(bound)
            if isinstance(passed, Failure):
                return passed
            failure = inaccuracy(self.operands.problem, passed.relative, baseline_error)
            if candidate.rows and not failure:
                failure = self._compare_rows(candidate, candidate.rows)
            if repeats and not failure:
                failure = self._verifier.repeat(bound, _launches(*repeats, passed.time_us))
            return failure or (bound(self.operands.values(1.0, 0.0)), passed)

        return self._guarded(prepared)

    def _library_failure(self, call: LibraryCall) -> Failure | None:
        """Why a library's call is not run: it is missing, or its version is known to compute the
        call wrong."""
        try:
            version = self._session.cublaslt.version
        except (MissingError, RunnerError) as error:
            return Failure("launch", str(error))
        split_k, algorithm = call.algorithm.split_k, call.algorithm.id
        card = self.device.compute_capability
        fault = known_fault(version, card, call.problem, split_k, algorithm=algorithm)
        return Failure("verify", fault) if fault else None

    def _compare_rows(self, candidate: Candidate, reference: RowReference) -> Failure | None:
        """Compares rows of the C that a verified candidate has left with those of another."""
        failure = row_fault(self._session, self.operands, reference)
        self.operands.reserve(candidate.plan.workspace, candidate.plan.counters)
        self._verifier.clear_scratch()
        return failure

    def _thorough(self, candidate: Candidate) -> Failure | None:
        """Verifies on operands with gaps, for as long as these exist; without gaps where a library
        refuses its algorithm for them, as it does again at a call."""
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
        bound = self._session.bind(candidate)
        if plan.library and verifier is not self._verifier:
            try:
                bound(operands.values(1.0, 0.0))
            except self._session.Error:
                verifier = self._verifier
        passed = verifier.verify(bound, THOROUGH)
        return passed if isinstance(passed, Failure) else None

    def _verified(self, run: Run, library: str | None = None) -> Ready | Failure:
        """A library's verified run, or its failure, which states the `library`'s version."""
        whole = run.whole if isinstance(run, PaddedRun) else run

        def verified() -> Passed | Failure:
            try:
                return self._verifier.verify(lambda _: whole, LIBRARY)
            except RuntimeError as error:
                if isinstance(error, self._session.Error):
                    raise
                return Failure("launch", str(error).partition("\n")[0])

        passed = self._guarded(verified)
        if isinstance(passed, Failure):
            stated = f" (cuBLAS {library})" if library else ""
            return replace(passed, reason=f"{passed.reason}{stated}")
        return run, (passed if library is None else replace(passed, library=library or UNKNOWN))

    def _verified_baseline(self) -> Ready | Failure | None:
        """The baseline's verified run, or why its result is wrong; None if it computes none."""
        ready = self._verified(self._baseline, cublaslt.version()) if self._baseline else None
        return None if isinstance(ready, Failure) and ready.stage == "launch" else ready


def _launches(limits: tuple[int, int], device_us: float, each_us: float) -> int:
    """An even number of launches of `each_us` that take `device_us`, within the limits."""
    low, high = limits
    return max(low, min(high, 2 * int(device_us / each_us / 2)))


def open_baseline_bench(problem: Problem, index: int) -> PendingBench:
    """Opens the bench of the worker with the library, which is imported before it is ready.

    The context is created before the device is reported: later it would disturb the measuring
    process.
    """
    session = open_session(index).__enter__()

    def finish() -> BaselineBench:
        with suppress(Exception):  # the first request that needs the library reports it
            import_library()
        return BaselineBench(session, problem)

    return PendingBench(session.device, session.driver, finish)


def open_quick_baseline_bench(problem: Problem, index: int) -> PendingBench:
    """Opens the bench of the worker that calls cuBLAS directly, where that serves, and imports no
    library for it."""
    session = open_session(index).__enter__()
    return PendingBench(
        session.device,
        session.driver,
        lambda: BaselineBench(session, problem, open_quick_baseline),
    )


class BaselineBench:
    """Serves each request on operands of its own, then frees them for the measuring process."""

    def __init__(
        self, session: Session, problem: Problem, opener: OpenBaseline | None = None
    ) -> None:
        self._session, self._problem, self._opener = session, problem, opener

    def switch_to(self, problem: Problem) -> None:
        """Takes up another problem."""
        self._problem = problem

    def has_room(self, workspace: int) -> bool:
        """Whether memory suffices for a request whose candidates use `workspace` bytes."""
        flush = 2 * self._session.device.l2_bytes
        wanted = operand_bytes(self._problem) + workspace + flush + LIBRARY_BYTES
        return wanted <= self._session.free_bytes()

    def baseline(self) -> Measurement | Failure | None:
        """Answers as `GemmBench.baseline`."""
        return self._bench().baseline()

    def rematch(
        self, candidates: Sequence[Candidate], with_baseline: bool, deadline: float = math.inf
    ) -> Rematch:
        """Answers as `GemmBench.rematch`."""
        return self._bench().rematch(candidates, with_baseline, deadline)

    def energies(self, candidates: Sequence[Candidate], with_baseline: bool) -> Energies | str:
        """Answers as `GemmBench.energies`."""
        return self._bench().energies(candidates, with_baseline)

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        """Answers as `GemmBench.compare`."""
        return self._bench().compare(candidates, baselines)

    def verify_libraries(self, baselines: Sequence[str]) -> dict[str, Passed | Failure]:
        """Answers as `GemmBench.verify_libraries`."""
        return self._bench().verify_libraries(baselines)

    def library(self) -> str:
        """The version of cuBLAS, such as `13.1.0`; empty without it."""
        return cublaslt.version()

    def _bench(self) -> GemmBench:
        gc.collect()  # reference cycles of an earlier bench hold device memory
        cache = settings.cache_dir()
        return GemmBench(self._session, self._problem, cache=cache, opener=self._opener)
