"""The runner that measures on a GPU, through a worker process that candidates may take down."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.config import Config
from autotune.device import Device
from autotune.errors import RunnerError
from autotune.gpu.process import GoneError, Worker
from autotune.plan import Resources
from autotune.problem import Problem
from autotune.runner import Candidate, Evidence, Failure, Measurement

BENCH = "autotune.gpu.bench:open_bench"

# A candidate takes well under a second. The second term is for slow GPUs: verification's float64
# product and the naive kernel at 1 TFLOP/s, a dozen times over.
TIME_LIMIT, TIME_LIMIT_PER_TFLOP = 5.0, 20.0
VENDOR_LIMIT = 120.0  # importing PyTorch takes seconds


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
        """Verifies and times a candidate."""
        answer = self._ask("measure", (candidate, best_us), self._limit)
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
        for _ in range(2):
            if not self._worker.alive:
                self._worker.stop()
                self._worker = Worker(self._bench, self._arguments, warm=False)
            try:
                return self._worker.ask(method, arguments, limit)
            except GoneError:  # killed while idle; the request is not to blame
                continue
        raise RunnerError("the worker ended twice before it took a request; look for who kills it")


def _garbled(answer: object) -> Failure:
    return Failure("crash", f"the worker answered {answer!r}, neither a measurement nor a failure")
