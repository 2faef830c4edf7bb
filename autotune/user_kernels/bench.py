"""The bench of one user kernel on one GPU: verifies candidates and times them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, SupportsInt, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune import settings
from autotune.device import Device
from autotune.errors import RunnerError
from autotune.families.plan import LaunchPlan, Piece
from autotune.measure.bench import BaseBench, Ready
from autotune.measure.gpu_runner import GpuRunner, unexpected
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.measure.session import Run, Session, open_session
from autotune.measure.timing import hopeless_us
from autotune.measure.verify import Passed
from autotune.measure.worker import PendingBench
from autotune.records.kernel_record import NOT_VERIFIED, PIECE_GAP
from autotune.user_kernels.guarded_arrays import (
    PATTERN,
    DeviceComparison,
    GuardedArray,
    compile_ahead,
    copies_bytes,
    guarded_bytes,
)
from autotune.user_kernels.results import Agreement
from autotune.user_kernels.workload import Workload

T = TypeVar("T")

BENCH = "autotune.user_kernels.bench:open_bench"

PER_GB = 20.0
"""Seconds to compare a gigabyte of arrays on the host."""

SPARE = 2**29
"""Bytes of device memory left free beside copies of the arrays: for local memory, and the flush of
L2."""

RUNS = 2
"""A kernel that is right only the first time is wrong; the second run has nothing to load."""


def open_kernel_runner(
    work: Workload, index: int = 0, *, time_limit: float, device: Device | None = None
) -> KernelRunner:
    """A runner for a user kernel on GPU `index`, which starts in the background.

    Args:
        work: the arguments of the kernel, and the results it has to compute. Without arrays, the
            runner serves once it has switched to a work with them.
        index: the GPU.
        time_limit: seconds for all runs of one candidate; the time to compare its results is added.
        device: the GPU, if its limits are known already.
    """
    limit = seconds_limit(work, time_limit)
    return KernelRunner(
        work, index, bench=BENCH, baseline_bench=None, time_limit=limit, device=device
    )


def seconds_limit(work: Workload, time_limit: float) -> float:
    """Seconds for one candidate: those of its runs, and those to compare its results."""
    return time_limit + PER_GB * work.bytes / 1e9


class KernelRunner(GpuRunner):
    """A runner for a user kernel. Where this process compares results, it does so after one run of
    each candidate, before the candidate is measured."""

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        return self._failure(candidate) or super().measure(candidate, best, objective)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        failures = [self._failure(candidate) for candidate in candidates]
        pairs = zip(candidates, failures, strict=True)
        outcomes = iter(super().rematch([each for each, failure in pairs if failure is None]))
        return [failure or next(outcomes) for failure in failures]

    def examine(self, candidate: Candidate) -> Failure | None:
        return self._failure(candidate) or super().examine(candidate)

    def results(self, candidate: Candidate) -> Sequence[NDArray[Any]] | Failure:
        """The contents that one run leaves in each array argument."""
        answer = self._request("results", (candidate,), self._limit)
        return answer if isinstance(answer, list | Failure) else unexpected(answer)

    def _failure(self, candidate: Candidate) -> Failure | None:
        """The failure of a candidate whose results are wrong, if this process compares them."""
        if not isinstance(self._task, Workload) or self._task.on_host is None:
            return None
        results = self.results(candidate)
        if isinstance(results, Failure):
            return results
        reason = self._task.on_host(candidate.config, results)
        return None if reason is None else Failure("verify", reason)


def open_bench(work: Workload, index: int) -> PendingBench:
    """Opens the bench of a worker; its session stays open until the process ends."""
    session = open_session(index)
    if not work.buffers:  # they follow
        compile_ahead(work.call, session.device.arch, settings.cache_dir())
    return PendingBench(
        session.device, session.driver, lambda: KernelBench(session.__enter__(), work)
    )


class KernelBench(BaseBench):
    """Verifies and times candidates of one call, all on the same arrays.

    Before a verified run the arrays and their guards are restored; a timed run finds what the run
    before it left. With too little memory for copies, the host restores and compares the arrays.
    """

    def __init__(self, session: Session, work: Workload) -> None:
        """Allocates the arrays.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        super().__init__(session)
        self.switch_to(work)

    def switch_to(self, work: Workload) -> None:
        """Takes up another call, in place of the arrays so far; raises as the constructor."""
        self._arrays: list[GuardedArray] = []  # frees their memory
        self._comparison: DeviceComparison | None = None
        session = self._session
        needed = sum(map(guarded_bytes, work.buffers))
        with_copies, free = needed + copies_bytes(work.buffers), session.free_bytes()
        if needed > free:
            raise RunnerError(
                f"{work}: the arrays take {needed / 2**30:.1f} GiB of device memory, and "
                f"{with_copies / 2**30:.1f} GiB if they are verified there, {session.device.name} "
                f"has {free / 2**30:.1f} GiB free; give smaller arrays"
            )
        self._arrays = [GuardedArray(session, buffer) for buffer in work.buffers]
        self._scratch = ScratchMemory(session)
        self._values = {array.buffer.name: array.address for array in self._arrays}
        self._textures = {word: session.texture(texture) for word, texture in work.textures.items()}
        self._values |= {word: texture.handle for word, texture in self._textures.items()}
        self._constants = work.constants
        self._verified = work.verified != NOT_VERIFIED
        if self._verified and work.buffers and with_copies + SPARE <= free:
            cache = settings.cache_dir()
            self._comparison = DeviceComparison(session, self._arrays, cache)

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """Verifies, then times; few samples if clearly slower than the best by the objective, and
        the first run alone if that takes twice as long."""
        ready = self._prepared(candidate, hopeless_us(best, objective))
        if isinstance(ready, Failure):
            return ready
        return self._guarded(lambda: self._timed(ready, best, objective))

    def examine(self, candidate: Candidate) -> Failure | None:
        """Verifies a winner once more, after it was timed beside others."""
        ready = self._prepared(candidate)
        return ready if isinstance(ready, Failure) else None

    def results(self, candidate: Candidate) -> list[NDArray[Any]] | Failure:
        """The contents that a run leaves in each array; it is compared with nothing."""

        def run() -> list[NDArray[Any]] | Failure:
            enqueue, pieces = self._bound(candidate)
            self._restore(pieces)
            enqueue()
            return _until_failure(array.content() for array in self._arrays)

        return self._guarded(run)

    def _verified_together(
        self, candidates: Sequence[Candidate], with_baseline: bool, leaders: bool
    ) -> tuple[list[Ready | Failure], None]:
        del with_baseline, leaders  # no library has this kernel
        return [self._prepared(candidate) for candidate in candidates], None

    def _prepared(self, candidate: Candidate, enough_us: float = math.inf) -> Ready | Failure:
        def prepared() -> Ready | Failure:
            run, pieces = self._bound(candidate)
            passed = self._checked(run, pieces, enough_us)
            return passed if isinstance(passed, Failure) else (run, passed)

        return self._guarded(prepared)

    def _bound(self, candidate: Candidate) -> tuple[Run, list[Piece]]:
        memory, pieces = self._scratch.located(candidate.plan)
        values = {piece.word: piece.offset for piece in pieces}
        run = self._session.bind(candidate, self._constants)({**self._values, **values})

        def run_in_memory(_: object = memory) -> None:
            run()

        return run_in_memory if pieces else run, pieces

    def _restore(self, pieces: Sequence[Piece], *, written_only: bool = False) -> None:
        """Enqueues that scratch memory and all arrays have their initial contents again, or those
        arrays that a correct kernel has changed."""
        for array in self._arrays:
            if not written_only or array.buffer.free or array.buffer.expected is not None:
                array.restore()
        self._scratch.restore(pieces)

    def _agreements(self) -> list[Agreement | None] | Failure:
        if not self._verified:
            return []
        if self._comparison is not None:
            return _until_failure(self._comparison.compare())
        return _until_failure(array.checked() for array in self._arrays)

    def _checked(self, run: Run, pieces: Sequence[Piece], enough_us: float) -> Passed | Failure:
        """Compares the results of `RUNS` runs, or of one that takes longer than `enough_us`."""
        agreements: list[Agreement | None] = []
        times = []
        for repeated in range(RUNS):
            self._restore(pieces, written_only=bool(repeated))
            start = self._session.mark()
            run()
            end = self._session.mark()
            self._session.synchronize()
            times.append(1e3 * start.time_till(end))
            checked = self._agreements()
            if isinstance(checked, Failure):
                return checked
            if (stray := self._scratch.stray(pieces)) is not None:
                return stray
            agreements = checked
            if times[-1] > enough_us:
                break
        outputs = filter(None, agreements)
        worst = max(outputs, key=lambda agreement: agreement.share, default=None)
        error, allowed = (None, None) if worst is None else (worst.error, worst.allowed)
        return Passed(error, allowed, None, min(times))


def _until_failure(answers: Iterable[T | Failure]) -> list[T] | Failure:
    values: list[T] = []
    for answer in answers:
        if isinstance(answer, Failure):
            return answer
        values.append(answer)
    return values


NAN = 0xFF
"""Byte of scratch memory before a run: NaN in any floating-point type, -1 in a whole number."""


class ScratchMemory:
    """The scratch memory that candidates share: a run keeps what it is bound to."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._memory: SupportsInt = 0
        self._size = 0

    def located(self, plan: LaunchPlan) -> tuple[SupportsInt, list[Piece]]:
        """Memory for a plan's workspace, and its pieces with their addresses as offsets.

        Raises:
            Exception: `session.MemoryError`, if there is too little memory.
        """
        if plan.workspace > self._size:
            self._memory = self._size = 0  # frees what no run keeps
            self._memory = self._session.allocate(PIECE_GAP + plan.workspace)
            self._size = plan.workspace
        start = int(self._memory) + PIECE_GAP
        return self._memory, [each._replace(offset=start + each.offset) for each in plan.pieces]

    def restore(self, pieces: Sequence[Piece]) -> None:
        """Enqueues the initial contents of pieces and of the guards around them."""
        for _, address, size in pieces:
            self._session.fill(address - PIECE_GAP, PATTERN, PIECE_GAP, 1)
            self._session.fill(address, NAN, size, 1)
            self._session.fill(address + size, PATTERN, PIECE_GAP, 1)

    def stray(self, pieces: Sequence[Piece]) -> Failure | None:
        """The failure of a write beside a piece; their contents are compared with nothing."""
        guards = np.empty((2, PIECE_GAP), np.uint8)
        for word, address, size in pieces:
            self._session.download(guards[0], address - PIECE_GAP)
            self._session.download(guards[1], address + size)
            if count := int((guards != PATTERN).sum()):
                where = word.replace("scratch", "the scratch memory of argument")
                return Failure("verify", f"stray writes: changed {count} bytes around {where}")
        return None
