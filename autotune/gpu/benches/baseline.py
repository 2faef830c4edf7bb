"""The bench of the worker with the vendor library: baseline, rematch, comparison."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import suppress

from autotune import settings
from autotune.gpu.benches.base import Energies, Rematch
from autotune.gpu.benches.gemm import GemmBench
from autotune.gpu.cublas import open_cublas
from autotune.gpu.opening import open_session
from autotune.gpu.operands import Operands, operand_bytes
from autotune.gpu.session import Run, Session
from autotune.gpu.vendor_baseline import OpenBaseline, import_library, open_baseline
from autotune.gpu.worker import PendingBench
from autotune.problem import Problem
from autotune.runners.base import Candidate, Failure, Measurement

LIBRARY_BYTES = 2**30
"""Device memory left to the library for its kernels and its workspace, generously: making room
needlessly costs the start of a process, too little memory costs the request."""


def open_bench(problem: Problem, index: int) -> PendingBench:
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


def open_quick_bench(problem: Problem, index: int) -> PendingBench:
    """As `open_bench`, without the import: cuBLAS is called directly where that serves."""
    session = open_session(index).__enter__()
    return PendingBench(
        session.device,
        session.driver,
        lambda: BaselineBench(session, problem, open_quick_baseline),
    )


def open_quick_baseline(session: Session, operands: Operands) -> Run | None:
    """The run of cuBLAS itself, else that of `open_baseline`."""
    return open_cublas(session, operands) or open_baseline(session, operands)


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
        """As `GemmBench.baseline`."""
        return self._bench().baseline()

    def rematch(self, candidates: Sequence[Candidate], with_baseline: bool) -> Rematch:
        """As `GemmBench.rematch`."""
        return self._bench().rematch(candidates, with_baseline)

    def energies(self, candidates: Sequence[Candidate], with_baseline: bool) -> Energies | str:
        """As `GemmBench.energies`."""
        return self._bench().energies(candidates, with_baseline)

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        """As `GemmBench.compare`."""
        return self._bench().compare(candidates, baselines)

    def _bench(self) -> GemmBench:
        gc.collect()  # reference cycles of an earlier bench hold device memory
        cache = settings.cache_dir()
        return GemmBench(self._session, self._problem, cache=cache, opener=self._opener)
