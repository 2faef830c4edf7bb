"""User kernels, loaded in a recorded configuration and launched on arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from autotune.cuda.program import Program
from autotune.errors import ArrayError
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.problem.call import KernelCall
from autotune.records.kernel_record import word_of
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.executable import Enqueue, Executable
from autotune.runtime.frameworks.base import dense
from autotune.runtime.state import Runtime

KEPT_CALLS = 256
"""Calls with the same addresses and numbers that stay bound."""

_BITS = {"uint8": 1, "uint16": 2}
"""Recorded element types that stand for any type of as many bytes, which NumPy may lack."""


class TunedKernel:
    """A user kernel in one configuration, loaded on a GPU. Calling it launches it.

    Attributes:
        call: the arguments that it was tuned for.
        config: the values of its parameters.
        plan: its launch.
        program: the machine code, with its registers and shared memory.
    """

    def __init__(
        self, runtime: Runtime, ordinal: int, call: KernelCall, plan: LaunchPlan, program: Program
    ) -> None:
        self.call, self.plan, self.program = call, plan, program
        self.config: Config = plan.config
        self._runtime, self._ordinal = runtime, ordinal
        self._executables = {plan.main.grid: Executable(runtime.gpu(ordinal), plan, [program])}
        self._checked: set[Any] = set()
        self._bound: dict[Any, Enqueue] = {}
        self._names = [text.partition("=")[0] for text in call.arguments]

    @property
    def grid(self) -> tuple[int, int, int]:
        """Blocks along x, y and z."""
        return self.plan.main.grid

    @property
    def block(self) -> tuple[int, int, int]:
        """Threads of a block along x, y and z."""
        return self.plan.main.block

    @property
    def shared(self) -> int:
        """Bytes of dynamic shared memory."""
        return self.plan.main.shared

    def __call__(
        self,
        *arguments: Any,
        stream: Any = None,
        grid: tuple[int, int, int] | None = None,
    ) -> None:
        """Enqueues one launch on the caller's current stream, and does not wait for it.

        Args:
            arguments: for each array that it was tuned with an array of the same type and shape on
                this GPU, without gaps, of PyTorch, CuPy, PyCUDA or another library with DLPack or
                `__cuda_array_interface__`; for each number a number.
            stream: another stream: one of these libraries, or its handle.
            grid: blocks along x, y and z for arrays of other shapes, which are then not compared.

        Raises:
            ArrayError: for another number of arguments, another type or shape, an array with gaps
                or on another device, or a number that its type does not hold.
            RunnerError: if the driver refuses the launch.
        """
        if len(arguments) != len(self._names):
            raise ArrayError(
                f"{self.call} takes {len(self._names)} arguments, not {len(arguments)}"
            )
        arrays: list[Any] = []
        values: list[int | float] = []
        for place, argument in enumerate(arguments):
            if self._is_array(place):
                arrays.append(argument)
                values.append(self._address(place, argument, grid is None))
            else:
                values.append(_number(self._names[place], argument, place))
        handle = self._stream(arrays) if stream is None else _handle(stream)
        self._enqueue(tuple(values), grid or self.grid)(handle)

    def _is_array(self, place: int) -> bool:
        return self._names[place].endswith("]")

    def _address(self, place: int, array: Any, shaped: bool) -> int:
        """The address of an array, which is checked when its signature is new."""
        framework = self._runtime.framework(array, word_of(place))
        address, signature = framework.read(array)
        key = place, shaped, type(framework), signature
        if key not in self._checked:
            self._check(place, framework.describe(array, word_of(place)), shaped)
            if len(self._checked) >= KEPT_CALLS:
                self._checked.clear()
            self._checked.add(key)
        return address

    def _check(self, place: int, operand: ArrayInfo, shaped: bool) -> None:
        name, _, sizes = self._names[place].removesuffix("]").partition("[")
        wanted = tuple(int(size) for size in sizes.split(",") if size)
        actual = _dtype_of(operand.dtype)
        if operand.ordinal != self._ordinal:
            raise ArrayError(
                f"{operand.name} is on {_device(operand.ordinal)}; the kernel is loaded on CUDA "
                f"device {self._ordinal}: move the array, or load it there by kernel(device=...)"
            )
        if actual[0] != name and _BITS.get(name) != actual[1]:
            raise ArrayError(f"{operand.name} is {actual[0]}; the kernel takes {name}")
        if shaped and operand.shape != wanted:
            raise ArrayError(
                f"{operand.name} has the shape {operand.shape}; the kernel was tuned for {wanted}: "
                "tune it for yours, or give the grid for it"
            )
        steps = zip(operand.shape, operand.strides, dense(operand.shape), strict=True)
        if any(size > 1 and stride != step for size, stride, step in steps):
            raise ArrayError(
                f"{operand.name} of shape {operand.shape} has strides {operand.strides}; give an "
                "array without gaps (.contiguous())"
            )

    def _stream(self, arrays: Sequence[Any]) -> int:
        """The current stream of the library of the first array."""
        if not arrays:
            return 0
        framework = self._runtime.framework(arrays[0], word_of(0))
        return framework.stream(arrays, self._ordinal)

    def _enqueue(self, values: tuple[Any, ...], grid: tuple[int, int, int]) -> Enqueue:
        key = values, grid
        enqueue = self._bound.get(key)
        if enqueue is None:
            if len(self._bound) >= KEPT_CALLS:
                self._bound.clear()
            words = {word_of(place): value for place, value in enumerate(values)}
            try:
                enqueue = self._executable(grid).bind_words(words)
            except struct.error as error:
                raise ArrayError(f"a number of {self.call} does not fit: {error}") from error
            self._bound[key] = enqueue
        return enqueue

    def _executable(self, grid: tuple[int, int, int]) -> Executable:
        executable = self._executables.get(grid)
        if executable is None:
            launch = replace(self.plan.main, grid=grid)
            plan = replace(self.plan, launches=(launch,))
            executable = Executable(self._runtime.gpu(self._ordinal), plan, [self.program])
            self._executables[grid] = executable
        return executable


def _number(name: str, value: Any, place: int) -> int | float:
    """A number as the driver takes it, in the type of that NumPy name."""
    if not hasattr(value, "__float__") or getattr(value, "ndim", False):
        raise ArrayError(f"{word_of(place)} is {type(value).__name__}; the kernel takes a {name}")
    if name == "float16":
        import numpy as np

        return int(np.float16(value).view(np.uint16))
    if name.startswith("float"):
        return float(value)
    if int(value) != value:
        raise ArrayError(f"{word_of(place)} is {value!r}; the kernel takes a {name}")
    return int(value)


def _dtype_of(name: str) -> tuple[str, int]:
    """An element type's name and its bytes; NumPy may lack it, as it does bfloat16."""
    import numpy as np

    try:
        dtype = np.dtype(name)
    except TypeError:
        return name, 2 if name == "bfloat16" else 1
    return dtype.name, dtype.itemsize


def _device(ordinal: int | None) -> str:
    return "the CPU" if ordinal is None else f"CUDA device {ordinal}"


def _handle(stream: Any) -> int:
    """The handle of a stream of PyTorch, CuPy or PyCUDA, or of `cuda.core`."""
    for name in ("cuda_stream", "ptr", "handle"):
        stream = getattr(stream, name, stream)
    return int(stream)
