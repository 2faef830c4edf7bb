"""The arrays of a user's kernel in device memory, and whether the kernel fills them as it must."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.driver.arguments import Values
from autotune.errors import RunnerError
from autotune.gpu.operands import GUARD
from autotune.gpu.session import Session
from autotune.runners.base import Failure
from autotune.user_kernels.comparison import Comparison, compare
from autotune.user_kernels.workload import Buffer, Workload

PATTERN = 0xA5
"""Of the bytes before and behind each array. As a number of any type it is an unlikely result."""


class Slot:
    """An array amid its guards, on the device and as it comes back from there."""

    def __init__(self, session: Session, buffer: Buffer) -> None:
        """Allocates it.

        Raises:
            pycuda.driver.MemoryError: if there is too little memory.
        """
        self._session = session
        self.buffer = buffer
        content = buffer.before.reshape(-1).view(np.uint8)
        guard = np.full(GUARD, PATTERN, np.uint8)
        self._image = np.concatenate([guard, content, guard])
        self._found = np.empty_like(self._image)
        self._allocation = session.allocate(self._image.size)
        self._right: tuple[NDArray[np.uint8], Comparison] | None = None

    @property
    def address(self) -> int:
        """Where the first element is."""
        return int(self._allocation) + GUARD

    def restore(self) -> None:
        """Puts on the stream what the kernel is to find, guards included."""
        self._session.cuda.memcpy_htod_async(
            int(self._allocation), self._image, self._session.stream
        )

    def judged(self) -> Comparison | Failure | None:
        """What the kernel has left; None for an array that it has rightly left as it was.

        The stream has to be idle.
        """
        self._session.cuda.memcpy_dtoh(self._found, int(self._allocation))
        where = f"argument {self.buffer.place}"
        guards = self._found[:GUARD], self._found[-GUARD:]
        if count := sum(int((guard != PATTERN).sum()) for guard in guards):
            return Failure("verify", f"stray writes: changed {count} bytes around {where}")
        found = self._found[GUARD:-GUARD]
        if self.buffer.expected is None:
            return self._unchanged(found, where)
        if self._right is not None and np.array_equal(found, self._right[0]):
            return self._right[1]  # as candidates mostly agree to the last bit
        array = found.view(self.buffer.before.dtype).reshape(self.buffer.before.shape)
        comparison = compare(array, self.buffer.expected)
        if comparison.wrong:
            return Failure("verify", f"{where}: wrong result: {self._difference(comparison)}")
        self._right = found.copy(), comparison
        return comparison

    def _unchanged(self, found: NDArray[np.uint8], where: str) -> Failure | None:
        size = self.buffer.before.itemsize
        changed = (found != self._image[GUARD:-GUARD]).reshape(-1, size).any(axis=1)
        if count := int(changed.sum()):
            what = f"changed {count} elements of {where}, which the reference leaves as it is"
            return Failure("verify", f"stray writes: {what}")
        return None

    def _difference(self, one: Comparison) -> str:
        place = one.place if len(one.place) != 1 else one.place[0]
        size = self.buffer.before.size
        what = (
            f"{one.wrong} of {size} elements, such as {one.found:.6g} instead of {one.wanted:.6g} "
            f"at {place}, tolerance {one.allowed:.3g}"
        )
        if one.found == one.found or not self.buffer.written:
            return what
        return f"{what}; it held NaN before, as the reference does not read it"


class Slots:
    """The arrays of one call."""

    def __init__(self, session: Session, work: Workload) -> None:
        """Allocates them.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        needed = work.bytes + 4 * GUARD * len(work.buffers)
        if needed > (free := session.free_bytes()):
            raise RunnerError(
                f"{work}: the arrays take {needed / 2**30:.1f} GiB of device memory, "
                f"{session.device.name} has {free / 2**30:.1f} GiB free; give smaller ones"
            )
        self._slots = [Slot(session, buffer) for buffer in work.buffers]

    @property
    def values(self) -> Values:
        """The addresses, by the symbols of the plan."""
        return {slot.buffer.name: slot.address for slot in self._slots}

    def restore(self) -> None:
        """Puts on the stream what the kernel is to find in all of them."""
        for slot in self._slots:
            slot.restore()

    def judged(self) -> list[Comparison] | Failure:
        """The outputs beside what was expected, or the first that is wrong about any array."""
        comparisons: list[Comparison] = []
        for slot in self._slots:
            outcome: Any = slot.judged()
            if isinstance(outcome, Failure):
                return outcome
            comparisons += [outcome] if outcome else []
        return comparisons
