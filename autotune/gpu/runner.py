"""The runner that measures on a GPU, through a worker process that candidates may take down."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.config import Config
from autotune.device import Device
from autotune.errors import RunnerError
from autotune.gpu.process import STARTS, GoneError, Worker
from autotune.plan import Resources
from autotune.problem import Problem
from autotune.runner import Candidate, Evidence, Failure, Measurement

BENCH = "autotune.gpu.bench:open_bench"

# A candidate takes well under a second. The second term is for slow GPUs: verification's float64
# product and the naive kernel at 1 TFLOP/s, a dozen times over.
TIME_LIMIT, TIME_LIMIT_PER_TFLOP = 5.0, 20.0
VENDOR_LIMIT = 120.0  # importing PyTorch takes seconds
RIVALS = 16  # runs that one factory may open


def open_runner(problem: Problem, index: int = 0) -> GpuRunner:
    """A runner for a problem on GPU `index`.

    Raises:
        MissingError: if PyCUDA, the driver or a GPU is missing.
        DeviceError: if there is no GPU of that index.
        RunnerError: if the worker process cannot start, or the problem needs more memory than free.
    """
    return GpuRunner(problem, index)


class GpuRunner:
    """Measures candidates of one problem in a worker process.

    An illegal access, an endless loop or a killed worker costs the candidate at hand alone: it
    comes back as a `Failure`, and the next request starts a new worker. Not for several threads.

    `measure`, `rematch` and `baseline` raise what the constructor raises if a new worker cannot
    start.
    """

    evidence: Evidence = "measured"

    def __init__(
        self,
        problem: Problem,
        index: int = 0,
        *,
        bench: str = BENCH,
        time_limit: float | None = None,
    ) -> None:
        """Starts the worker.

        Args:
            problem: what the candidates compute.
            index: the GPU.
            bench: `module:function` of the worker's bench; called with problem and index.
            time_limit: seconds for one candidate; by default from the problem's operations.

        Raises:
            AutotuneError: as `open_runner`.
        """
        self._bench, self._arguments = bench, (problem, index)
        by_size = TIME_LIMIT + TIME_LIMIT_PER_TFLOP * problem.flops / 1e12
        self._limit = by_size if time_limit is None else time_limit
        self._baseline: Measurement | None = None
        self._worker = Worker(bench, self._arguments, warm=True)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._worker.hello.device

    @property
    def driver(self) -> str:
        """The CUDA version of the driver, such as `13.0`."""
        return self._worker.hello.driver

    def known(self) -> Sequence[Config] | None:
        """None: any configuration can be measured."""
        return None

    def resources(self, config: Config) -> Resources | None:  # noqa: ARG002
        """None: resources come from compilation."""
        return None

    def measure(self, candidate: Candidate, best_us: float | None) -> Measurement | Failure:
        """Verifies a candidate, its accuracy too if the baseline is known, and times it."""
        vendor_error = self._baseline.relative_error if self._baseline else None
        answer = self._ask("measure", (candidate, best_us, vendor_error), self._limit)
        return answer if isinstance(answer, Measurement | Failure) else _garbled(answer)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """Verifies and times the candidates interleaved, together with the baseline if known.

        Should one of them take the worker down, each is measured by itself.
        """
        against_vendor = self._baseline is not None
        limit = self._limit * (len(candidates) + 1) + VENDOR_LIMIT * against_vendor
        match self._ask("rematch", (list(candidates), against_vendor), limit):
            case (list(outcomes), Measurement() | None as vendor) if len(outcomes) == len(
                candidates
            ):
                self._baseline = vendor or self._baseline
                return outcomes
            case _:
                return [self.measure(candidate, None) for candidate in candidates]

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
        answer = self._ask("compare", (list(candidates), list(rivals)), limit)
        if isinstance(answer, dict):
            return answer
        raise RunnerError(f"comparing on {self._arguments[0]} failed: {_reason(answer)}")

    def baseline(self) -> Measurement | None:
        """cuBLAS on the same operands through PyTorch or CuPy, timed once.

        After a rematch it is the time from there, interleaved with the candidates'.
        """
        if self._baseline is None:
            answer = self._ask("baseline", (), self._limit + VENDOR_LIMIT)
            self._baseline = answer if isinstance(answer, Measurement) else None
        return self._baseline

    def close(self) -> None:
        """Ends the worker."""
        self._worker.stop()

    def _ask(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        for _ in range(STARTS):
            if not self._worker.alive:
                self._worker.stop()
                self._worker = Worker(self._bench, self._arguments, warm=False)
            try:
                return self._worker.ask(method, arguments, limit)
            except GoneError:  # killed while idle; the request is not to blame
                continue
        raise RunnerError(
            f"the worker ended {STARTS} times before it took a request; look for who kills it"
        )


def _garbled(answer: object) -> Failure:
    return Failure("crash", _reason(answer))


def _reason(answer: object) -> str:
    if isinstance(answer, Failure):
        return answer.reason
    return f"the worker answered {answer!r}, neither a measurement nor a failure"
