"""The runner that measures on a GPU, in worker processes that a candidate may take down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from time import monotonic

from autotune.device import Device
from autotune.errors import AutotuneError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective, objective_named
from autotune.measure.runner import Candidate
from autotune.measure.worker import RestartingWorker
from autotune.problem import Problem

BENCH = "autotune.measure.bench:open_bench"
BASELINE_BENCH = "autotune.measure.bench:open_baseline_bench"
QUICK_BASELINE_BENCH = "autotune.measure.bench:open_quick_baseline_bench"

# A candidate takes well under a second. The second term is for slow GPUs: verification's float64
# product and the naive kernel at 1 TFLOP/s, a dozen times over.
CANDIDATE, PER_TFLOP = 5.0, 20.0
BASELINE_LIMIT = 120.0  # loading cuBLAS takes seconds from a slow disk
EXAMINE_TIMES = 4  # a winner is verified on two sets of operands and launched many times
LIBRARY_RUNS = 16  # runs that one factory of further baselines may open
ENERGY_LIMIT = 20.0  # two windows of 0.75 s, and a counter that stands still is noticed after 5 s


def candidate_limit(task: object) -> float:
    """Seconds for one candidate, from a problem's operations."""
    flops = task.flops if isinstance(task, Problem) else 0
    return CANDIDATE + PER_TFLOP * flops / 1e12


def open_runner(
    problem: Problem, index: int = 0, *, with_baseline: bool = True, quick: bool = False
) -> GpuRunner:
    """A runner for a problem on GPU `index`, which starts in the background.

    Without the vendor baseline a rematch does not compare accuracies. A `quick` one calls cuBLAS
    without PyTorch where it can.
    """
    baseline_bench = QUICK_BASELINE_BENCH if quick else BASELINE_BENCH
    return GpuRunner(problem, index, baseline_bench=baseline_bench if with_baseline else None)


class GpuRunner:
    """Measures candidates of one problem, or of one user kernel, in worker processes.

    One process measures. The other has the vendor library loaded and times against the vendor
    baseline. Both create their contexts at the start, so that no context is created while something
    is timed, and they never work at the same time. Where memory, or a GPU in exclusive mode, allows
    for one only, the process that is not needed ends.

    An illegal access, an endless loop or a killed worker costs the current candidate alone: it is a
    `Failure`, and the next request starts a new worker. For one thread at a time, except for
    `baseline_ready`.

    Whatever needs a worker that cannot start, including `device`, raises a `MissingError` if the
    driver or a GPU is missing, a `DeviceError` if there is no GPU of that index, and a
    `RunnerError` if the process fails or the problem needs more memory than is free.

    Attributes:
        baseline_fault: why cuBLAS's result was refused when `baseline` or `rematch` verified it
            last; else empty.
    """

    evidence: Evidence = "measured"

    def __init__(
        self,
        task: object,
        index: int = 0,
        *,
        bench: str = BENCH,
        baseline_bench: str | None = BASELINE_BENCH,
        time_limit: float | None = None,
        device: Device | None = None,
    ) -> None:
        """Starts the workers and waits for nothing.

        Args:
            task: computation of the candidates.
            index: the GPU.
            bench: `module:function` that opens the measuring bench, called with task and index.
            baseline_bench: likewise for the bench with the vendor library; None for no baseline.
            time_limit: seconds for one candidate; by default from the problem's operations.
            device: the GPU, if its limits are known already; else the worker states them.
        """
        self._device, self._deadline = device, math.inf
        self._limit = candidate_limit(task) if time_limit is None else time_limit
        self._task = task
        self._baseline: Measurement | None = None
        self._baseline_known = baseline_bench is None  # also if it is known not to exist
        self.baseline_fault = ""
        self._contexts_ready = False
        self._measuring = RestartingWorker(bench, (task, index))
        self._library = RestartingWorker(baseline_bench, (task, index)) if baseline_bench else None

    def switch_to(self, task: object, time_limit: float | None = None) -> None:
        """Takes up another task in the same processes, which saves their start.

        Args:
            task: as for the constructor.
            time_limit: likewise.

        Raises:
            AutotuneError: if a process that has yet to start cannot.
        """
        self._task = task
        self._limit = candidate_limit(task) if time_limit is None else time_limit
        self._baseline, self._baseline_known = None, self._library is None
        self.baseline_fault = ""
        for worker in (self._measuring, self._library):
            if worker is not None:
                worker.switch_to(task, self._limit + BASELINE_LIMIT)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._device or self._measuring.device_info.device

    @property
    def driver(self) -> str:
        """The CUDA version that the driver supports, such as `13.0`."""
        return self._measuring.device_info.driver

    def known(self) -> Sequence[Config] | None:
        """None: any configuration can be measured."""
        return None

    def resources(self, config: Config) -> Resources | None:  # noqa: ARG002
        """None: resources come from compilation."""
        return None

    def algorithms(self) -> Sequence[Config]:
        """The algorithms of cuBLASLt's heuristic for the problem, the best expected first."""
        answer = self._request("algorithms", (), self._limit + BASELINE_LIMIT)
        return answer if isinstance(answer, list) else ()

    def until(self, deadline: float) -> None:
        """Bounds measurements and rematches by a time of `time.monotonic`."""
        self._deadline = deadline

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """Verifies a candidate and times it, without the vendor library."""
        left = max(0.0, self._deadline - monotonic())
        return self._measured(candidate, best, objective, min(self._limit, left))

    def _measured(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective, limit: float
    ) -> Measurement | Failure:
        self._await_contexts()
        asked = candidate, best, objective_named(objective)
        answer = self._request("measure", asked, limit)
        return answer if isinstance(answer, Measurement | Failure) else unexpected(answer)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """Verifies and times the candidates interleaved, with the baseline if it is known.

        If one of them takes the worker down, each is measured separately.
        """
        with_baseline = self._baseline is not None
        limit = self._limit * (len(candidates) + 1) + BASELINE_LIMIT * with_baseline
        bounds = with_baseline, self._deadline
        match self._interleaved("rematch", candidates, bounds, limit):
            case (list(outcomes), Measurement() | Failure() | None as baseline) if len(
                outcomes
            ) == len(candidates):
                if baseline is not None:
                    self._take_baseline(baseline)
                return outcomes
            case _:
                return [self._measured_separately(candidate) for candidate in candidates]

    def examine(self, candidate: Candidate) -> Failure | None:
        """Verifies a winner beyond what each candidate has to pass."""
        answer = self._request("examine", (candidate,), EXAMINE_TIMES * self._limit)
        return answer if answer is None or isinstance(answer, Failure) else unexpected(answer)

    def energy_fault(self) -> str | None:
        """Why NVML states no energy of the GPU; None if it does."""
        answer = self._request("energy_fault", (), self._limit)
        return answer if answer is None or isinstance(answer, str) else reason_of(answer)

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        """The energy of one run of each candidate, and of the baseline if it is known.

        If one of them takes the worker down, each is measured separately.
        """
        with_baseline = self._baseline is not None
        limit = (self._limit + ENERGY_LIMIT) * (len(candidates) + 1)
        limit += BASELINE_LIMIT * with_baseline
        match self._interleaved("energies", candidates, (with_baseline,), limit):
            case str(reason):
                raise RunnerError(reason)
            case (list(energies), Energy() | None as own) if len(energies) == len(candidates):
                if self._baseline is not None and own is not None:
                    self._baseline = replace(self._baseline, energy=own)
                return energies
            case answer if len(candidates) < 2:
                return [unexpected(answer) for _ in candidates]
            case _:
                return [energy for each in candidates for energy in self.energies([each])]

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str] = ()
    ) -> dict[str, Measurement | Failure]:
        """Candidates, the vendor baseline and further baselines, verified and timed interleaved.

        Args:
            candidates: named by the texts of their configurations.
            baselines: `module:function` of each factory, imported by the worker and called with its
                session and its operands. It returns pairs of a name and a `session.Run` that
                computes the problem at alpha = 1 and beta = 0.

        Returns:
            The outcome for each name; `bench.BASELINE` is cuBLAS, where available. A relative
            error is reported, however large beside the baseline's.

        Raises:
            RunnerError: if one of them takes the worker down, or a factory fails.
        """
        runs = len(candidates) + LIBRARY_RUNS * len(baselines) + 1
        limit = self._limit * runs + BASELINE_LIMIT
        answer = self._interleaved("compare", candidates, (list(baselines),), limit)
        if isinstance(answer, dict):
            return answer
        raise RunnerError(f"comparing on {self._task} failed: {reason_of(answer)}")

    def baseline(self) -> Measurement | None:
        """cuBLAS on operands of the same kind, verified and timed once.

        After a rematch it is the time from there, interleaved with the candidates'.
        """
        if not self._baseline_known:
            answer = self._request_with_library("baseline", (), self._limit + BASELINE_LIMIT)
            self._take_baseline(answer)
        return self._baseline

    def _take_baseline(self, answer: object) -> None:
        """Keeps the worker's answer. It is asked again if the worker did not survive."""
        wrong = isinstance(answer, Failure) and answer.stage == "verify"
        self._baseline = answer if isinstance(answer, Measurement) else None
        self.baseline_fault = answer.reason if isinstance(answer, Failure) and wrong else ""
        self._baseline_known = wrong or not isinstance(answer, Failure)

    @property
    def baseline_ready(self) -> bool:
        """Whether `baseline` would not wait for PyTorch to be imported."""
        return self._baseline_known or self._library is None or not self._library.starting

    def close(self) -> None:
        """Ends the workers."""
        workers = [worker for worker in (self._measuring, self._library) if worker]
        for worker in workers:
            worker.kill()  # all of them before waiting for the first
        for worker in workers:
            worker.stop()

    def _await_contexts(self) -> None:
        """Waits, the first time, until the worker with the library has its context too."""
        if self._library is not None and not self._contexts_ready:
            with suppress(AutotuneError):  # `baseline` reports it
                _ = self._library.device_info
        self._contexts_ready = True

    def _measured_separately(self, candidate: Candidate) -> Measurement | Failure:
        """Measures a candidate and checks its accuracy beside the baseline, if that is known."""
        outcome = self._measured(candidate, None, HOT, self._limit)
        if self._baseline is None or not isinstance(self._task, Problem):
            return outcome
        from autotune.measure.oracle import checked_accuracy  # imports NumPy

        return checked_accuracy(self._task, outcome, self._baseline.relative_error)

    def _interleaved(
        self,
        method: str,
        candidates: Sequence[Candidate],
        arguments: tuple[object, ...],
        limit: float,
    ) -> object:
        """The answer of a method that takes all candidates at once, and further arguments."""
        workspace = max((candidate.plan.workspace for candidate in candidates), default=0)
        return self._request_with_library(method, (list(candidates), *arguments), limit, workspace)

    def _request_with_library(
        self, method: str, arguments: tuple[object, ...], limit: float, workspace: int = 0
    ) -> object:
        """The answer of the worker with the vendor library, else of the measuring worker.

        The measuring worker ends first if the GPU has no memory for both.
        """
        if self._library is None:
            return self._request(method, arguments, limit)
        _ = self.device  # stays known when that worker has ended
        if self._request("has_room", (workspace,), limit, self._library) is False:
            self._measuring.stop()
        return self._request(method, arguments, limit, self._library)

    def _request(
        self,
        method: str,
        arguments: tuple[object, ...],
        limit: float,
        worker: RestartingWorker | None = None,
    ) -> object:
        """The answer of a worker, by default the measuring one.

        If it cannot start, the other one ends, its rival for the GPU, and it tries again.
        """
        worker = worker or self._measuring
        rival = self._library if worker is self._measuring else self._measuring
        try:
            return worker.request(method, arguments, limit)
        except RunnerError:
            if rival is None or rival.ended:
                raise
            rival.stop()
            return worker.request(method, arguments, limit)


def unexpected(answer: object) -> Failure:
    """The failure of a candidate whose worker gave another answer than it has to."""
    return Failure("crash", reason_of(answer))


def reason_of(answer: object) -> str:
    """Why an answer is none."""
    if isinstance(answer, Failure):
        return answer.reason
    return f"the worker answered {answer!r}, neither a measurement nor a failure"
