"""One GPU through PyCUDA: its limits, its primary context, kernels and launches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from autotune.compiler import Program
from autotune.device import Device
from autotune.driver import attributes, tensor_maps
from autotune.driver.arguments import FORMATS, Values, resolve_arguments
from autotune.driver.clusters import with_clusters
from autotune.driver.dependent_launch import dependent_launches
from autotune.errors import DeviceError, MissingError
from autotune.families.plan import ArgumentType, Launch, Resources, TensorMap
from autotune.gpu.driver_kernels import DriverKernel
from autotune.runners.base import Candidate

Run = Callable[[], None]
"""Enqueues all launches of one computation on the session's stream."""

Dim3 = tuple[int, int, int]

NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no implicit order with the legacy default stream


def pycuda() -> Any:
    """PyCUDA's driver interface, initialised.

    Raises:
        MissingError: if PyCUDA, the NVIDIA driver or a GPU is missing.
    """
    try:
        import pycuda.driver as cuda
    except ModuleNotFoundError as error:
        raise MissingError(
            f'no PyCUDA ({error}); run `pip install "tile-autotune[gpu]"`'
        ) from error
    except ImportError as error:
        raise MissingError(
            f"PyCUDA cannot be loaded: {error}; libcuda comes with the NVIDIA driver, "
            "other libraries with the CUDA toolkit that PyCUDA was built for"
        ) from error
    try:
        cuda.init()
        count = cuda.Device.count()
    except cuda.Error as error:
        raise MissingError(f"no usable GPU: {error}; `nvidia-smi` shows what is there") from error
    if not count:
        raise MissingError("no GPU: the NVIDIA driver shows none; see `nvidia-smi`")
    return cuda


def probe(index: int = 0) -> Device:
    """The identity and limits of GPU `index`, as its driver states them; needs no context.

    Raises:
        MissingError: if PyCUDA, the driver or a GPU is missing.
        DeviceError: if there is no GPU of that index.
    """
    return _described(_device(pycuda(), index))


def count() -> int:
    """Number of GPUs that the driver shows.

    Raises:
        MissingError: if PyCUDA, the driver or a GPU is missing.
    """
    return int(pycuda().Device.count())


@dataclass(frozen=True)
class LoadedKernel:
    """A kernel that PyCUDA has loaded, with its stream and dynamic shared memory in bytes."""

    function: Any
    stream: Any
    shared: int

    def enqueue(self, grid: Dim3, block: Dim3, *arguments: int | float | bytes) -> None:
        """Enqueues one launch."""
        self.function.prepared_async_call(
            grid, block, self.stream, *arguments, shared_size=self.shared
        )

    def step(
        self, grid: Dim3, block: Dim3, arguments: Sequence[int | float | bytes]
    ) -> Callable[[], None]:
        """A function that enqueues this launch each time it is called."""
        return partial(self.enqueue, grid, block, *arguments)

    def attribute(self, name: str) -> int:
        """An attribute of the function, such as `NUM_REGS`, from the driver."""
        import pycuda.driver as cuda

        return int(self.function.get_attribute(getattr(cuda.function_attribute, name)))


class Session:
    """GPU `index`, its primary context and one stream; a context manager.

    The primary context is shared with PyTorch, CuPy and `cuda.bindings` in this process. Use a
    session in the thread that entered it. Errors of the driver surface as PyCUDA's `Error`.

    Attributes:
        device: the GPU's identity and limits, with the clusters that the driver states.
        index: the GPU's number.
        driver: the CUDA version that the driver supports, such as `13.0`.
        stream: a PyCUDA stream that does not wait for the default stream.
    """

    def __init__(self, index: int = 0) -> None:
        self.cuda = pycuda()
        self.index = index
        self._handle = _device(self.cuda, index)
        self.device = with_clusters(_described(self._handle), index)
        version = self.cuda.get_driver_version()
        self.driver = f"{version // 1000}.{version % 1000 // 10}"

    def __enter__(self) -> Session:
        self._context = self._handle.retain_primary_context()
        self._context.push()
        self.stream = self.cuda.Stream(NON_BLOCKING)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        from cuda.bindings import driver

        del self.stream
        # PyCUDA 2026.1 never takes a primary context that it releases off the thread's stack.
        checked(driver.cuCtxPopCurrent())
        self._context.detach()

    def synchronize(self) -> None:
        """Waits for the stream."""
        self.stream.synchronize()

    def mark(self) -> Any:
        """A PyCUDA event, recorded at this point of the stream."""
        return self.cuda.Event().record(self.stream)

    def broken(self) -> bool:
        """Whether an earlier error, such as an illegal access, has broken the context."""
        try:
            self.cuda.Context.synchronize()
        except self.cuda.Error:
            return True
        return False

    def allocate(self, size: int) -> Any:
        """A PyCUDA allocation of `size` bytes; `int` gives its address."""
        return self.cuda.mem_alloc(size)

    def free_bytes(self) -> int:
        """Bytes of free device memory."""
        return int(self.cuda.mem_get_info()[0])

    def load(self, program: Program, types: Sequence[ArgumentType], shared: int) -> LoadedKernel:
        """Loads a program's kernel for launches with `shared` bytes of dynamic shared memory.

        Not for kernels that take tensor maps.
        """
        function = self.cuda.module_from_buffer(program.cubin).get_function(program.symbol)
        limit = self.cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        function.set_attribute(limit, shared)
        function.prepare("".join(FORMATS[name] for name in types))
        return LoadedKernel(function, self.stream, shared)

    def bind(self, candidate: Candidate) -> Callable[[Values], Run]:
        """Loads the candidate's programs; returns a function that makes a run with given values."""
        launches = candidate.plan.launches
        dependents = dependent_launches(candidate.plan, self.device)
        kernels = [
            self._loaded(*loaded)
            for loaded in zip(candidate.programs, launches, dependents, strict=True)
        ]

        def bound(values: Values) -> Run:
            steps = [
                kernel.step(
                    launch.grid, launch.block, resolve_arguments(launch.arguments, values, _encode)
                )
                for kernel, launch in zip(kernels, launches, strict=True)
            ]

            def run() -> None:
                for step in steps:
                    step()

            return run

        return bound

    def _loaded(
        self, program: Program, launch: Launch, dependent: bool = False
    ) -> LoadedKernel | DriverKernel:
        types = [argument.type for argument in launch.arguments]
        if "tensor_map" not in types and not dependent:
            return self.load(program, types, launch.shared)
        from cuda.bindings import driver

        return DriverKernel.load(
            *(driver, checked, program.cubin, program.symbol),
            types=types,
            stream=self.stream,
            shared=launch.shared,
            dependent=dependent,
        )

    def resources(self, program: Program, launch: Launch) -> Resources:
        """Resources of the loaded kernel from the driver, which does not state `barriers`."""
        kernel = self._loaded(program, launch)
        return Resources(
            threads=launch.threads,
            registers=kernel.attribute("NUM_REGS"),
            shared=kernel.attribute("SHARED_SIZE_BYTES") + launch.shared,
            local=kernel.attribute("LOCAL_SIZE_BYTES"),
            barriers=program.barriers,
        )

    def resident_blocks(self, program: Program, launch: Launch) -> int:
        """Resident blocks of an SM from the driver's occupancy calculator, which PyCUDA lacks."""
        from cuda.bindings import driver

        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        module = checked(driver.cuModuleLoadData(program.cubin))
        try:
            function = checked(driver.cuModuleGetFunction(module, program.symbol.encode()))
            checked(driver.cuFuncSetAttribute(function, attribute, launch.shared))
            query = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor
            return int(checked(query(function, launch.threads, launch.shared)))
        finally:
            checked(driver.cuModuleUnload(module))


def checked(answer: tuple[Any, ...]) -> Any:
    """The value of a `cuda.bindings` call, without its status.

    Raises:
        pycuda.driver.LogicError: if the status is not success, as in PyCUDA's own calls.
    """
    status, *values = answer
    if status.value:
        import pycuda.driver as cuda

        raise cuda.LogicError(f"{status.name} ({status.value})")
    return values[0] if values else None


def _encode(tensor_map: TensorMap, values: Values) -> bytes:
    from cuda.bindings import driver

    return tensor_maps.TensorMapEncoder(driver)(tensor_map, values)


def _device(cuda: Any, index: int) -> Any:
    count = cuda.Device.count()
    if not 0 <= index < count:
        raise DeviceError(f"no GPU {index}; the driver shows {count}, numbered from 0")
    return cuda.Device(index)


def _described(handle: Any) -> Device:
    values = {name: int(getattr(handle, name.lower())) for name in attributes.NAMES}
    return attributes.describe(handle.name(), handle.total_memory(), values)
