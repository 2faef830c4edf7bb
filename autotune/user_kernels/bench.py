"""The bench of one user kernel on one GPU: verifies candidates and times them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsInt, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.errors import RunnerError
from autotune.families.plan import LaunchPlan, Piece
from autotune.measure.bench import BaseBench, Ready, Rematch
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.operands import GUARD
from autotune.measure.runner import Candidate
from autotune.measure.session import Run, Session, open_session
from autotune.measure.verify import Passed
from autotune.measure.worker import PendingBench
from autotune.records.kernel_record import PIECE_GAP
from autotune.user_kernels.results import Comparison, compare
from autotune.user_kernels.workload import ArrayArgument, Workload

PATTERN = 0xA5
"""Byte of the guards around each array; an unlikely result as a number of any type."""

T = TypeVar("T")


class GuardedArray:
    """An array between its guards, on the device and as read back."""

    def __init__(self, session: Session, buffer: ArrayArgument) -> None:
        """Allocates the array.

        Raises:
            Exception: `session.MemoryError`, if there is too little memory.
        """
        self._session = session
        self.buffer = buffer
        content = buffer.before.reshape(-1).view(np.uint8)
        guard = np.full(GUARD, PATTERN, np.uint8)
        self._image = np.concatenate([guard, content, guard])
        self._copied = np.empty_like(self._image)
        self._allocation = session.allocate(self._image.size)
        self._accepted: tuple[NDArray[np.uint8], Comparison] | None = None

    @property
    def address(self) -> int:
        """Address of the first element."""
        return int(self._allocation) + GUARD

    def restore(self) -> None:
        """Enqueues the upload of the array's initial content, guards included."""
        self._session.upload(int(self._allocation), self._image)

    def checked(self) -> Comparison | Failure | None:
        """Compares the array after the work on the stream; None for one that had to stay unchanged
        and did.
        """
        where = f"argument {self.buffer.place}"
        content = self._downloaded()
        if isinstance(content, Failure):
            return content
        if self.buffer.expected is None:
            return self._unchanged(content, where)
        if self._accepted is not None and np.array_equal(content, self._accepted[0]):
            return self._accepted[1]  # most candidates agree to the last bit
        array = content.view(self.buffer.before.dtype).reshape(self.buffer.before.shape)
        comparison = compare(array, self.buffer.expected)
        if comparison.wrong:
            return Failure("verify", f"{where}: wrong result: {self._difference(comparison)}")
        self._accepted = content.copy(), comparison
        return comparison

    def content(self) -> NDArray[Any] | Failure:
        """A copy of the contents after the work on the stream."""
        content = self._downloaded()
        if isinstance(content, Failure):
            return content
        before = self.buffer.before
        copied: NDArray[Any] = content.copy().view(before.dtype).reshape(before.shape)
        return copied

    def _downloaded(self) -> NDArray[np.uint8] | Failure:
        """The bytes of the array, or the failure of a write beside it."""
        self._session.download(self._copied, int(self._allocation))
        guards = self._copied[:GUARD], self._copied[-GUARD:]
        if count := sum(int((guard != PATTERN).sum()) for guard in guards):
            where = f"argument {self.buffer.place}"
            return Failure("verify", f"stray writes: changed {count} bytes around {where}")
        return self._copied[GUARD:-GUARD]

    def _unchanged(self, content: NDArray[np.uint8], where: str) -> Failure | None:
        size = self.buffer.before.itemsize
        changed = (content != self._image[GUARD:-GUARD]).reshape(-1, size).any(axis=1)
        if count := int(changed.sum()):
            changes = f"changed {count} elements of {where}, which the reference leaves as it is"
            return Failure("verify", f"stray writes: {changes}")
        return None

    def _difference(self, comparison: Comparison) -> str:
        place = comparison.place if len(comparison.place) != 1 else comparison.place[0]
        size = self.buffer.before.size
        text = (
            f"{comparison.wrong} of {size} elements, such as {comparison.actual:.6g} "
            f"instead of {comparison.desired:.6g} at {place}, tolerance {comparison.allowed:.3g}"
        )
        if comparison.actual == comparison.actual or not self.buffer.written:
            return text
        return f"{text}; it held NaN before, as the reference does not read it"


BENCH = "autotune.user_kernels.bench:open_bench"

PER_GB = 20.0
"""Seconds to compare a gigabyte of arrays on the host."""

RUNS = 2
"""A kernel that is right only the first time is wrong; the second run has nothing to load."""


def open_kernel_runner(work: Workload, index: int = 0, *, time_limit: float) -> GpuRunner:
    """A runner for a user kernel on GPU `index`.

    Args:
        work: the arguments of the kernel, and the results it has to compute.
        index: the GPU.
        time_limit: seconds for all runs of one candidate; the time to compare its results is added.
    """
    limit = time_limit + PER_GB * work.bytes / 1e9
    return GpuRunner(work, index, bench=BENCH, baseline_bench=None, time_limit=limit)


def open_bench(work: Workload, index: int) -> PendingBench:
    """Opens the bench of a worker; its session stays open until the process ends."""
    session = open_session(index)
    return PendingBench(
        session.device, session.driver, lambda: KernelBench(session.__enter__(), work)
    )


class KernelBench(BaseBench):
    """Verifies and times candidates of one call, all on the same arrays.

    Before each verified run every array and its guards are restored; a timed run finds what the run
    before it left.
    """

    def __init__(self, session: Session, work: Workload) -> None:
        """Allocates the arrays.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        super().__init__(session)
        needed = work.bytes + 4 * GUARD * len(work.buffers)
        if needed > (free := session.free_bytes()):
            raise RunnerError(
                f"{work}: the arrays take {needed / 2**30:.1f} GiB of device memory, "
                f"{session.device.name} has {free / 2**30:.1f} GiB free; give smaller arrays"
            )
        self._arrays = [GuardedArray(session, buffer) for buffer in work.buffers]
        self._scratch = ScratchMemory(session)
        self._values = {array.buffer.name: array.address for array in self._arrays}

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """Verifies, then times; few samples if clearly slower than the best by the objective."""
        ready = self._prepared(candidate)
        if isinstance(ready, Failure):
            return ready
        return self._guarded(lambda: self._timed(ready, best, objective))

    def rematch(self, candidates: Sequence[Candidate], with_baseline: bool) -> Rematch:
        """Verifies all candidates, then times them interleaved."""
        return self._interleaved(self._verified_together(candidates, with_baseline)[0]), None

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
            self._session.synchronize()
            return self._read(GuardedArray.content)

        return self._guarded(run)

    def baseline(self) -> Measurement | None:
        """None: no library has this kernel."""
        return None

    def _verified_together(
        self, candidates: Sequence[Candidate], with_baseline: bool
    ) -> tuple[list[Ready | Failure], None]:
        del with_baseline  # no library has this kernel
        return [self._prepared(candidate) for candidate in candidates], None

    def _prepared(self, candidate: Candidate) -> Ready | Failure:
        def prepared() -> Ready | Failure:
            run, pieces = self._bound(candidate)
            passed = self._checked(run, pieces)
            return passed if isinstance(passed, Failure) else (run, passed)

        return self._guarded(prepared)

    def _bound(self, candidate: Candidate) -> tuple[Run, list[Piece]]:
        """The run of a candidate, and its scratch memory."""
        memory, pieces = self._scratch.located(candidate.plan)
        values = {piece.word: piece.offset for piece in pieces}
        run = self._session.bind(candidate)({**self._values, **values})

        def run_in_memory(_: object = memory) -> None:
            run()

        return run_in_memory if pieces else run, pieces

    def _restore(self, pieces: Sequence[Piece]) -> None:
        """Enqueues the initial content of all arrays and of scratch memory."""
        for array in self._arrays:
            array.restore()
        self._scratch.restore(pieces)

    def _read(self, read: Callable[[GuardedArray], T | Failure]) -> list[T] | Failure:
        """The answers of all arrays after a run, or the first failure."""
        answers: list[T] = []
        for array in self._arrays:
            answer = read(array)
            if isinstance(answer, Failure):
                return answer
            answers.append(answer)
        return answers

    def _checked(self, run: Run, pieces: Sequence[Piece]) -> Passed | Failure:
        comparisons: list[Comparison] = []
        marks = []
        for _ in range(RUNS):
            self._restore(pieces)
            start = self._session.mark()
            run()
            marks.append((start, self._session.mark()))
            self._session.synchronize()
            checked = self._read(GuardedArray.checked)
            if isinstance(checked, Failure):
                return checked
            if (stray := self._scratch.stray(pieces)) is not None:
                return stray
            comparisons = [comparison for comparison in checked if comparison]
        worst = max(comparisons, key=_error_share)
        difference = sum(comparison.difference for comparison in comparisons)
        square = sum(comparison.square for comparison in comparisons)
        return Passed(
            error=worst.error,
            tolerance=worst.allowed,
            relative=math.sqrt(difference / square) if square else 0.0,
            time_us=min(1e3 * start.time_till(end) for start, end in marks),
        )


def _error_share(comparison: Comparison) -> float:
    """The error as a share of what is allowed."""
    return comparison.error / comparison.allowed if comparison.allowed else 0.0


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
