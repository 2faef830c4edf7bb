"""The arrays of a user kernel on the device, between guards: restored before a run, compared after
it.

Both happen on the device if it has memory for copies (`cuda_src/compare_arrays.cu`). Only an array
that is found wrong there is downloaded, for the words of its failure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import Any, SupportsInt

import numpy as np
from numpy.typing import NDArray

from autotune.errors import AutotuneError
from autotune.families.plan import ArgumentType, Template
from autotune.measure.measurement import Failure
from autotune.measure.operands import GUARD
from autotune.measure.session import LoadedKernel, Session
from autotune.measure.verify_kernels import MOST_BLOCKS, THREADS, program_of
from autotune.problem.call import KernelCall
from autotune.problem.integers import ceil_div
from autotune.user_kernels.results import Agreement, Comparison, compare
from autotune.user_kernels.workload import ArrayArgument, difference

PATTERN = 0xA5
"""Byte of the guards around each array; an unlikely result as a number of any type."""

VECTOR = 16
"""Bytes that a thread compares at once; the size of an array with its guards is a multiple."""

# As in compare_arrays.cu.
SOURCE = "compare_arrays.cu"

FINDINGS = np.dtype([("wrong", "i8"), ("place", "i8"), ("error", "f8"), ("ratio", "f8")])

ENTRIES = MOST_BLOCKS * FINDINGS.itemsize

TYPES: Mapping[str, str] = {
    **{"int8": "signed char", "int16": "short", "int32": "int", "int64": "long long"},
    **{"uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned"},
    **{"uint64": "unsigned long long", "float16": "Half", "float32": "float"},
    **{"float64": "double", "complex64": "Complex<float>", "complex128": "Complex<double>"},
}

PARAMETERS: Mapping[str, tuple[ArgumentType, ...]] = {
    "count_changed": ("pointer", "pointer", "i64", "i64", "i64", "pointer"),
    "compare": ("pointer", "pointer", "i64", "f64", "f64", "pointer"),
}

COUNT_CHANGED = Template(
    SOURCE, "count_changed", (("WORDS", "uint4"),), form="count_changed<{WORDS}>"
)


def comparison_of(actual: np.dtype[Any], expected: np.dtype[Any]) -> Template:
    """The kernel that compares arrays of these types."""
    types = ("ACTUAL", TYPES[actual.name]), ("EXPECTED", TYPES[expected.name])
    options = ("--fmad=false",)  # NumPy rounds between a product and a sum
    return Template(SOURCE, "compare", types, form="compare<{ACTUAL}, {EXPECTED}>", options=options)


def compile_ahead(call: KernelCall, arch: str, cache: Path | None) -> None:
    """Compiles in a thread the kernels that mostly compare the arrays of a call: it takes half a
    second, in which the reference runs. An error occurs again where a kernel is needed."""
    types = {text.partition("[")[0] for text in call.arguments} & TYPES.keys()
    own = (comparison_of(np.dtype(name), np.dtype(name)) for name in sorted(types))
    templates = COUNT_CHANGED, *own

    def compiled() -> None:
        with suppress(AutotuneError):
            for template in templates:
                program_of(template, arch, cache)

    Thread(target=compiled, daemon=True).start()


def device_type(buffer: ArrayArgument) -> np.dtype[Any] | None:
    """The type in which the device compares an array with its expected values; None if it cannot,
    or need not."""
    dtype, expected = buffer.before.dtype, buffer.expected
    if expected is None or dtype.name not in TYPES:
        return None
    if dtype.kind in "iu" or expected.values.dtype == dtype:
        return dtype
    wide = np.dtype(np.complex128 if dtype.kind == "c" else np.float64)
    return wide if np.can_cast(expected.values.dtype, wide) else None


class GuardedArray:
    """An array between its guards on the device."""

    def __init__(self, session: Session, buffer: ArrayArgument) -> None:
        """Allocates the array.

        Raises:
            Exception: `session.MemoryError`, if there is too little memory.
        """
        self._session = session
        self.buffer = buffer
        self.bytes = guarded_bytes(buffer)
        self.memory = session.allocate(self.bytes)
        self._initial: SupportsInt | None = None

    @property
    def address(self) -> int:
        """Address of the first element."""
        return int(self.memory) + GUARD

    @property
    def end(self) -> int:
        """Bytes from the first guard to the end of the elements."""
        return GUARD + self.buffer.before.nbytes

    def keep_initial(self) -> int:
        """Keeps a copy with its initial content on the device; returns the copy's address."""
        self._initial = self._session.allocate(self.bytes)
        self._write(int(self._initial))
        return int(self._initial)

    def restore(self) -> None:
        """Enqueues that the array, guards included, has its initial content again."""
        if self._initial is None:
            self._write(int(self.memory))
        else:
            self._session.copy(int(self.memory), int(self._initial), self.bytes)

    def _write(self, address: int) -> None:
        self._session.fill(address, PATTERN, GUARD, 1)
        self._session.upload(address + GUARD, self.buffer.before)
        self._session.fill(address + self.end, PATTERN, self.bytes - self.end, 1)

    def checked(self) -> Comparison | Failure | None:
        """Compares the array on the host after the work on the stream; None for one that has no
        expected contents, or had to stay unchanged and did.
        """
        buffer, content = self.buffer, self._downloaded()
        if isinstance(content, Failure) or buffer.free:
            return content if isinstance(content, Failure) else None
        if buffer.expected is None:
            return self._unchanged(content)
        comparison = compare(content, buffer.expected)
        if comparison.wrong:
            return Failure("verify", difference(buffer, comparison))
        return comparison

    def content(self) -> NDArray[Any] | Failure:
        """A copy of the contents after the work on the stream."""
        content = self._downloaded()
        return content if isinstance(content, Failure) else content.copy()

    @cached_property
    def _image(self) -> NDArray[np.uint8]:
        return np.empty(self.bytes, np.uint8)

    def _downloaded(self) -> NDArray[Any] | Failure:
        """The array in host memory, or the failure of a write beside it."""
        self._session.download(self._image, int(self.memory))
        guards = self._image[:GUARD], self._image[self.end :]
        if count := sum(int((guard != PATTERN).sum()) for guard in guards):
            where = f"argument {self.buffer.place}"
            return Failure("verify", f"stray writes: changed {count} bytes around {where}")
        before = self.buffer.before
        return self._image[GUARD : self.end].view(before.dtype).reshape(before.shape)

    def _unchanged(self, content: NDArray[Any]) -> Failure | None:
        before = self.buffer.before
        flat = (array.reshape(-1).view(np.uint8) for array in (content, before))
        elements = (array.reshape(before.size, -1) for array in flat)
        if count := int(np.not_equal(*elements).any(axis=1).sum()):
            where = f"argument {self.buffer.place}, which the reference leaves as it is"
            return Failure("verify", f"stray writes: changed {count} elements of {where}")
        return None


def guarded_bytes(buffer: ArrayArgument) -> int:
    """Bytes of an array with its guards, the second of which is longer by up to 15 bytes."""
    return VECTOR * ceil_div(buffer.before.nbytes + 2 * GUARD, VECTOR)


def copies_bytes(buffers: Sequence[ArrayArgument]) -> int:
    """Bytes of the copies and the expected values of arrays on the device."""
    types = ((device_type(buffer), buffer.before.size) for buffer in buffers)
    expected = sum(size * dtype.itemsize for dtype, size in types if dtype is not None)
    return expected + sum(map(guarded_bytes, buffers))


class DeviceComparison:
    """Compares all arrays of a call on the device, with copies that it keeps there."""

    def __init__(
        self, session: Session, arrays: Sequence[GuardedArray], cache: Path | None
    ) -> None:
        """Uploads the copies and the expected values; compiles the kernels through `cache`.

        Raises:
            Exception: `session.MemoryError`, if there is too little memory.
            MissingError: without a compiler.
            RunnerError: if a kernel does not compile.
        """
        self._session, self._arrays, self._cache = session, arrays, cache
        self._kernels: dict[Template, LoadedKernel] = {}
        self._findings = np.zeros((len(arrays), 2, MOST_BLOCKS), FINDINGS)
        self._entries = session.allocate(self._findings.nbytes)
        session.fill(int(self._entries), 0, self._findings.nbytes // 4)
        self._expected: list[SupportsInt] = []
        self._steps: list[Callable[[], None]] = []
        for place, array in enumerate(arrays):
            self._prepare(array, int(self._entries) + place * self._findings[0].nbytes)

    def _prepare(self, array: GuardedArray, entry: int) -> None:
        buffer, expected = array.buffer, array.buffer.expected
        skipped = (0, 0) if expected is None and not buffer.free else (GUARD, array.end)
        copied = int(array.memory), array.keep_initial(), array.bytes
        self._add(COUNT_CHANGED, array.bytes, *copied, *skipped, entry)
        if expected is not None and (dtype := device_type(buffer)) is not None:
            values = expected.values.astype(dtype, copy=False)
            self._expected.append(self._session.allocate(values.nbytes))
            address = int(self._expected[-1])
            self._session.upload(address, values)
            numbers = buffer.before.size, expected.rtol, expected.atol
            kernel, entry = comparison_of(buffer.before.dtype, dtype), entry + ENTRIES
            self._add(kernel, buffer.before.nbytes, array.address, address, *numbers, entry)
        self._session.synchronize()  # what is uploaded has to live until then

    def _add(self, template: Template, size: int, *arguments: int | float) -> None:
        if template not in self._kernels:
            program = program_of(template, self._session.device.arch, self._cache)
            types, shared = PARAMETERS[template.kernel], THREADS * FINDINGS.itemsize
            self._kernels[template] = self._session.load(program, types, shared)
        blocks = max(1, min(MOST_BLOCKS, ceil_div(size, VECTOR * THREADS)))
        launch = (blocks, 1, 1), (THREADS, 1, 1), arguments
        self._steps.append(self._kernels[template].step(*launch))

    def compare(self) -> Iterator[Agreement | Failure | None]:
        """Compares all arrays after the work on the stream, each as `GuardedArray.checked` does,
        which compares one that is wrong, or that the device cannot compare, once more."""
        for step in self._steps:
            step()
        self._session.download(self._findings, int(self._entries))
        return map(_outcome, self._arrays, self._findings)


def _outcome(array: GuardedArray, findings: NDArray[Any]) -> Agreement | Failure | None:
    changes, errors = findings
    expected = array.buffer.expected
    unknown = expected is not None and device_type(array.buffer) is None
    if unknown or changes["wrong"].any() or errors["wrong"].any():
        return array.checked()
    if expected is None:
        return None
    worst = errors[errors["ratio"].argmax()]
    return Agreement(float(errors["error"].max()), expected.allowed(int(worst["place"])))
