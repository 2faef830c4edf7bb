"""The arrays of a user kernel in device memory, each between guards, and their verification."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cuda.launches import Values
from autotune.errors import RunnerError
from autotune.gpu.guarded import GUARD
from autotune.gpu.session import Session
from autotune.runners.base import Failure
from autotune.user_kernels.comparison import Comparison, compare
from autotune.user_kernels.workload import ArrayArgument, Workload

PATTERN = 0xA5
"""Byte of the guards around each array; an unlikely result as a number of any type."""


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

    def judged(self) -> Comparison | Failure | None:
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


class GuardedArrays:
    """The arrays of one call."""

    def __init__(self, session: Session, work: Workload) -> None:
        """Allocates the arrays.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        needed = work.bytes + 4 * GUARD * len(work.buffers)
        if needed > (free := session.free_bytes()):
            raise RunnerError(
                f"{work}: the arrays take {needed / 2**30:.1f} GiB of device memory, "
                f"{session.device.name} has {free / 2**30:.1f} GiB free; give smaller ones"
            )
        self._arrays = [GuardedArray(session, buffer) for buffer in work.buffers]

    @property
    def values(self) -> Values:
        """The addresses by the plan's symbols."""
        return {array.buffer.name: array.address for array in self._arrays}

    def restore(self) -> None:
        """Enqueues the upload of the initial content of all arrays."""
        for array in self._arrays:
            array.restore()

    def contents(self) -> list[NDArray[Any]] | Failure:
        """The contents of all arrays after a run, or the first stray write."""
        contents: list[NDArray[Any]] = []
        for array in self._arrays:
            content = array.content()
            if isinstance(content, Failure):
                return content
            contents.append(content)
        return contents

    def judged(self) -> list[Comparison] | Failure:
        """The comparisons of all outputs, or the first failure of any array."""
        comparisons: list[Comparison] = []
        for array in self._arrays:
            outcome: Any = array.judged()
            if isinstance(outcome, Failure):
                return outcome
            comparisons += [outcome] if outcome else []
        return comparisons
