"""Kernels loaded and launched by `cuda.bindings`.

PyCUDA 2026.1 cannot make all launches. It passes all arguments in one buffer, and kernels launched
that way did not find their tensor maps (CUDA 13.0, H100: C stayed unchanged, or an illegal
instruction); with one pointer for each argument they do. It sets no launch attributes, which
dependent launches need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.cuda.launches import pack_arguments
from autotune.families.plan import ParameterType

Dim3 = tuple[int, int, int]


@dataclass(frozen=True)
class DriverKernel:
    """A kernel loaded by `cuda.bindings`.

    Attributes:
        cuda: `cuda.bindings.driver`.
        checked: returns the value of a call, or raises if its status is not success.
        function: the CUfunction, which lives as long as the process.
        types: types of its parameters.
        stream: address of the CUstream.
        shared: dynamic shared memory in bytes.
        dependent: whether launches are dependent (programmatic dependent launch).
    """

    cuda: Any
    checked: Callable[[tuple[Any, ...]], Any] = field(repr=False)
    function: Any
    types: Sequence[ParameterType]
    stream: int
    shared: int
    dependent: bool

    @classmethod
    def load(
        cls,
        cuda: Any,
        checked: Callable[[tuple[Any, ...]], Any],
        cubin: bytes,
        symbol: str,
        *,
        types: Sequence[ParameterType],
        stream: int,
        shared: int,
        dependent: bool = False,
    ) -> DriverKernel:
        """Loads the kernel of a cubin for launches with `shared` bytes of dynamic shared memory."""
        module = checked(cuda.cuModuleLoadData(cubin))
        function = checked(cuda.cuModuleGetFunction(module, symbol.encode()))
        limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(cuda.cuFuncSetAttribute(function, limit, shared))
        return cls(cuda, checked, function, types, stream, shared, dependent)

    def enqueue(self, grid: Dim3, block: Dim3, *arguments: int | float | bytes) -> None:
        """Enqueues one launch."""
        self.step(grid, block, arguments)()

    def step(
        self, grid: Dim3, block: Dim3, arguments: Sequence[int | float | bytes]
    ) -> Callable[[], None]:
        """A function that enqueues this launch each time it is called."""
        buffer = pack_arguments(self.types, arguments)
        configuration = self._configuration(grid, block)

        def enqueue() -> None:
            launch, at = self.cuda.cuLaunchKernelEx, buffer.address
            self.checked(launch(configuration, self.function, at, 0))

        return enqueue

    def _configuration(self, grid: Dim3, block: Dim3) -> Any:
        """The `CUlaunchConfig` of a launch."""
        configuration = self.cuda.CUlaunchConfig()
        configuration.gridDimX, configuration.gridDimY, configuration.gridDimZ = grid
        configuration.blockDimX, configuration.blockDimY, configuration.blockDimZ = block
        configuration.sharedMemBytes = self.shared
        configuration.hStream = self.stream
        if self.dependent:
            kinds, attribute = self.cuda.CUlaunchAttributeID, self.cuda.CUlaunchAttribute()
            attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            configuration.attrs, configuration.numAttrs = [attribute], 1
        return configuration

    def attribute(self, name: str) -> int:
        """An attribute of the function, such as `NUM_REGS`, from the driver."""
        kind = getattr(self.cuda.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        return int(self.checked(self.cuda.cuFuncGetAttribute(kind, self.function)))
