"""The runner that measures on a GPU, through worker processes that candidates may take down."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from autotune.device import Device
from autotune.errors import AutotuneError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.gpu.process import Service
from autotune.problem import Problem
from autotune.runners.base import Candidate, Evidence, Failure, Measurement, Objective

if TYPE_CHECKING:
    from autotune.user_kernels import Workload

BENCH = "autotune.gpu.benches.gemm:open_bench"
VENDOR_BENCH = "autotune.gpu.benches.vendor:open_vendor"
KERNEL_BENCH = "autotune.gpu.benches.user_kernel:open_bench"

# A candidate takes well under a second. The second term is for slow GPUs: verification's float64
# product and the naive kernel at 1 TFLOP/s, a dozen times over.
TIME_LIMIT, TIME_LIMIT_PER_TFLOP = 5.0, 20.0
# Arrays of a user's kernel are looked at by this machine's processor.
TIME_LIMIT_PER_GB = 20.0
VENDOR_LIMIT = 120.0  # loading cuBLAS takes seconds where the disk is slow
RIVALS = 16  # runs that one factory may open


def open_runner(problem: Problem, index: int = 0, *, library: bool = True) -> GpuRunner:
    """A runner for a problem on GPU `index`, which starts in the background.

    Without the vendor's library it has no baseline, and a rematch judges no accuracies.
    """
    return GpuRunner(problem, index, vendor=VENDOR_BENCH if library else None)


def open_kernel_runner(work: Workload, index: int = 0, *, time_limit: float) -> GpuRunner:
    """A runner for a kernel of the user's on GPU `index`.

    Args:
        work: what the kernel is called with and has to compute.
        index: the GPU.
        time_limit: seconds for all runs of one candidate; what looking at its results takes is
            added.
    """
    limit = time_limit + TIME_LIMIT_PER_GB * work.bytes / 1e9
    return GpuRunner(work, index, bench=KERNEL_BENCH, vendor=None, time_limit=limit)


class GpuRunner:
    """Measures candidates of one problem, or of one kernel of the user's, in worker processes.

    One measures; the other, where there is a vendor's library, has it loaded and times against it.
    Both make their contexts at the start, so that none comes while something is timed, and never
    do they work at once. Where memory, or a GPU in exclusive mode, does not allow for both, the one
    that is not asked ends.

    An illegal access, an endless loop or a killed worker costs the candidate at hand alone: it
    comes back as a `Failure`, and the next request starts a new worker. Not for several threads,
    but for `baseline_ready`.

    Whatever needs a worker that cannot start, `device` among it, raises a `MissingError` if PyCUDA,
    the driver or a GPU is missing, a `DeviceError` if there is no GPU of that index, and a
    `RunnerError` if the process fails or the problem needs more memory than is free.
    """

    evidence: Evidence = "measured"

    def __init__(
        self,
        task: Problem | Workload,
        index: int = 0,
        *,
        bench: str = BENCH,
        vendor: str | None = VENDOR_BENCH,
        time_limit: float | None = None,
    ) -> None:
        """Starts the workers and waits for nothing.

        Args:
            task: what the candidates compute.
            index: the GPU.
            bench: `module:function` that opens the bench that measures; called with task and index.
            vendor: likewise the one with the vendor's library; None if there is no such library.
            time_limit: seconds for one candidate; by default from a problem's operations.
        """
        self._limit = _limit_of(task) if time_limit is None else time_limit
        self._task = task
        self._baseline: Measurement | None = None
        self._asked = vendor is None  # whether the baseline is known, or known not to be there
        self._settled = False
        self._measuring = Service(bench, (task, index))
        self._vendor = Service(vendor, (task, index)) if vendor else None

    def turn_to(self, problem: Problem) -> None:
        """Takes up another problem in the same processes, which saves their start.

        Raises:
            AutotuneError: if a process that is still to start cannot.
        """
        self._task, self._limit = problem, _limit_of(problem)
        self._baseline, self._asked = None, self._vendor is None
        for one in (self._measuring, self._vendor):
            if one is not None:
                one.turn_to(problem, self._limit + VENDOR_LIMIT)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._measuring.hello.device

    @property
    def driver(self) -> str:
        """The CUDA version of the driver, such as `13.0`."""
        return self._measuring.hello.driver

    def known(self) -> Sequence[Config] | None:
        """None: any configuration can be measured."""
        return None

    def resources(self, config: Config) -> Resources | None:  # noqa: ARG002
        """None: resources come from compilation."""
        return None

    def measure(
        self, candidate: Candidate, best_us: float | None, objective: Objective = "hot"
    ) -> Measurement | Failure:
        """Verifies a candidate and times it; needs no vendor's library."""
        self._settle()
        answer = self._ask("measure", (candidate, best_us, objective), self._limit)
        return answer if isinstance(answer, Measurement | Failure) else _garbled(answer)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """Verifies and times the candidates interleaved, together with the baseline if known.

        Should one of them take the worker down, each is measured by itself.
        """
        against_vendor = self._baseline is not None
        limit = self._limit * (len(candidates) + 1) + VENDOR_LIMIT * against_vendor
        match self._raced("rematch", candidates, against_vendor, limit):
            case (list(outcomes), Measurement() | None as vendor) if len(outcomes) == len(
                candidates
            ):
                self._baseline = vendor or self._baseline
                return outcomes
            case _:
                return [self._alone(candidate) for candidate in candidates]

    def compare(
        self, candidates: Sequence[Candidate], rivals: Sequence[str] = ()
    ) -> dict[str, Measurement | Failure]:
        """Candidates, the vendor's library and its rivals, verified and timed interleaved.

        Args:
            candidates: named by the texts of their configurations.
            rivals: `module:function`, imported by the worker and called with its session and its
                operands; gives pairs of a name and a `session.Run` that computes the problem at
                alpha = 1 and beta = 0.

        Returns:
            What each name did; `bench.VENDOR` is cuBLAS through PyTorch or CuPy, where there is
            one. A relative error is reported, however large beside the vendor's.

        Raises:
            RunnerError: if one of them takes the worker down, or a rival cannot be opened.
        """
        limit = self._limit * (len(candidates) + RIVALS * len(rivals) + 1) + VENDOR_LIMIT
        answer = self._raced("compare", candidates, list(rivals), limit)
        if isinstance(answer, dict):
            return answer
        raise RunnerError(f"comparing on {self._task} failed: {_reason(answer)}")

    def baseline(self) -> Measurement | None:
        """cuBLAS on operands of the same kind through PyTorch or CuPy, timed once.

        After a rematch it is the time from there, interleaved with the candidates'.
        """
        if not self._asked:
            answer = self._ask_vendor("baseline", (), self._limit + VENDOR_LIMIT)
            self._baseline = answer if isinstance(answer, Measurement) else None
            self._asked = not isinstance(answer, Failure)
        return self._baseline

    @property
    def baseline_ready(self) -> bool:
        """Whether `baseline` would not wait for PyTorch or CuPy to be imported."""
        return self._asked or self._vendor is None or not self._vendor.waits

    def close(self) -> None:
        """Ends the workers."""
        workers = [one for one in (self._measuring, self._vendor) if one]
        for one in workers:
            one.kill()  # all before the first is waited for
        for one in workers:
            one.stop()

    def _settle(self) -> None:
        """Waits, the first time, until the other worker has its context as well."""
        if self._vendor is not None and not self._settled:
            with suppress(AutotuneError):  # told to whoever asks for the vendor
                _ = self._vendor.hello
        self._settled = True

    def _alone(self, candidate: Candidate) -> Measurement | Failure:
        """Measured by itself, and judged beside the baseline if that is known."""
        outcome = self.measure(candidate, None)
        if self._baseline is None or not isinstance(self._task, Problem):
            return outcome
        from autotune.verification.accuracy import (
            judged,  # NumPy with it, for which no worker has to wait
        )

        return judged(self._task, outcome, self._baseline.relative_error)

    def _raced(
        self, method: str, candidates: Sequence[Candidate], others: object, limit: float
    ) -> object:
        """The answer of a method that takes candidates, all at once, and something else."""
        workspace = max((one.plan.workspace for one in candidates), default=0)
        return self._ask_vendor(method, (list(candidates), others), limit, workspace)

    def _ask_vendor(
        self, method: str, arguments: tuple[object, ...], limit: float, workspace: int = 0
    ) -> object:
        """The answer of the worker with the library, alone on the GPU if both have no room there;
        where there is no library, that of the one that measures."""
        if self._vendor is None:
            return self._ask(method, arguments, limit)
        _ = self.device  # which is still asked for when that worker has ended
        if _either(self._vendor, self._measuring, "room", (workspace,), limit) is False:
            self._measuring.stop()
        return _either(self._vendor, self._measuring, method, arguments, limit)

    def _ask(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        """The answer of the worker that measures."""
        return _either(self._measuring, self._vendor, method, arguments, limit)


def _limit_of(task: Problem | Workload) -> float:
    """Seconds for one candidate, by a problem's operations."""
    flops = task.flops if isinstance(task, Problem) else 0
    return TIME_LIMIT + TIME_LIMIT_PER_TFLOP * flops / 1e12


def _either(
    one: Service, other: Service | None, method: str, arguments: tuple[object, ...], limit: float
) -> object:
    """The answer of one worker; if it cannot start beside the other, that one ends first."""
    try:
        return one.ask(method, arguments, limit)
    except RunnerError:
        if other is None or other.ended:
            raise
        other.stop()
        return one.ask(method, arguments, limit)


def _garbled(answer: object) -> Failure:
    return Failure("crash", _reason(answer))


def _reason(answer: object) -> str:
    if isinstance(answer, Failure):
        return answer.reason
    return f"the worker answered {answer!r}, neither a measurement nor a failure"
