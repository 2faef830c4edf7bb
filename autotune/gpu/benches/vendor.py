"""The bench of the worker process that has the vendor's library: baseline, rematch, comparison."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from contextlib import suppress

from autotune import settings
from autotune.gpu.benches.base import Rematch
from autotune.gpu.benches.gemm import GemmBench
from autotune.gpu.operands import operand_bytes
from autotune.gpu.session import Session
from autotune.gpu.vendor_library import load
from autotune.gpu.worker import Opening
from autotune.problem import Problem
from autotune.runners.base import Candidate, Failure, Measurement

LIBRARY_BYTES = 2**30
"""Device memory that is left to the library for its kernels and a workspace of its own, with much
to spare: to make room needlessly costs the start of a process, too little costs the request."""


def open_vendor(problem: Problem, index: int) -> Opening:
    """The bench of the worker process with the library, which is imported before it stands.

    The context is there before anybody is greeted: one that came later would take the device's
    time while the other process measures.
    """
    session = Session(index).__enter__()

    def stand() -> VendorBench:
        with suppress(Exception):  # whoever needs the library sees what goes wrong
            load()
        return VendorBench(session, problem)

    return Opening(session.device, session.driver, stand)


class VendorBench:
    """Serves each request on operands of its own, which are freed afterwards: the process that
    measures needs the memory meanwhile."""

    def __init__(self, session: Session, problem: Problem) -> None:
        self._session, self._problem = session, problem

    def turn_to(self, problem: Problem) -> None:
        """Takes up another problem."""
        self._problem = problem

    def room(self, workspace: int) -> bool:
        """Whether there is memory for a request whose candidates use so many bytes of workspace."""
        flush = 2 * self._session.device.l2_bytes
        wanted = operand_bytes(self._problem) + workspace + flush + LIBRARY_BYTES
        return wanted <= self._session.free_bytes()

    def baseline(self) -> Measurement | None:
        """As `GemmBench.baseline`."""
        return self._bench().baseline()

    def rematch(self, candidates: Sequence[Candidate], against_vendor: bool) -> Rematch:
        """As `GemmBench.rematch`."""
        return self._bench().rematch(candidates, against_vendor)

    def compare(
        self, candidates: Sequence[Candidate], rivals: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        """As `GemmBench.compare`."""
        return self._bench().compare(candidates, rivals)

    def _bench(self) -> GemmBench:
        gc.collect()  # what an earlier one left in cycles holds memory of the device
        return GemmBench(self._session, self._problem, cache=settings.cache_dir())
