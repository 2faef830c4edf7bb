"""Launches of kernels that take tensor maps, through `cuda.bindings`.

PyCUDA 2026.1 passes all arguments in one buffer. Kernels launched that way did not find their
tensor maps (CUDA 13.0, H100: C stayed unchanged, or an illegal instruction); with one pointer for
each argument they do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.driver.arguments import pack_arguments
from autotune.families.plan import ArgumentType

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class TensorMapKernel:
    """A kernel that takes tensor maps, loaded by `cuda.bindings`.

    Attributes:
        cuda: `cuda.bindings.driver`.
        checked: returns the value of a call, or raises if its status is not success.
        function: the CUfunction, which lives as long as the process.
        types: types of its arguments.
        stream: PyCUDA's stream.
        shared: dynamic shared memory in bytes.
    """

    cuda: Any
    checked: Callable[[tuple[Any, ...]], Any] = field(repr=False)
    function: Any
    types: Sequence[ArgumentType]
    stream: Any
    shared: int

    @classmethod
    def load(
        cls,
        cuda: Any,
        checked: Callable[[tuple[Any, ...]], Any],
        cubin: bytes,
        symbol: str,
        *,
        types: Sequence[ArgumentType],
        stream: Any,
        shared: int,
    ) -> TensorMapKernel:
        """Loads the kernel of a cubin for launches with `shared` bytes of dynamic shared memory."""
        module = checked(cuda.cuModuleLoadData(cubin))
        function = checked(cuda.cuModuleGetFunction(module, symbol.encode()))
        limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(cuda.cuFuncSetAttribute(function, limit, shared))
        return cls(cuda, checked, function, types, stream, shared)

    def step(
        self, grid: Dim3, block: Dim3, arguments: Sequence[int | float | bytes]
    ) -> Callable[[], None]:
        """A function that enqueues this launch each time it is called."""
        buffer = pack_arguments(self.types, arguments)
        handle = int(self.stream.handle)

        def enqueue() -> None:
            launch, at = self.cuda.cuLaunchKernel, buffer.address
            self.checked(launch(self.function, *grid, *block, self.shared, handle, at, 0))

        return enqueue

    def attribute(self, name: str) -> int:
        """An attribute of the function, such as `NUM_REGS`, from the driver."""
        kind = getattr(self.cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(self.checked(self.cuda.cuFuncGetAttribute(kind, self.function)))
