"""One GPU as the tuning process uses it: memory, kernels, launches, events.

`Session` is the port. `open_session` opens it through PyCUDA where that can be imported, else
through `cuda.bindings` alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, SupportsInt, TypeVar

from autotune import settings
from autotune.cuda import bindings, launches
from autotune.cuda.cublaslt import Cublas, CublasLt
from autotune.cuda.launches import Resolver, Values, dependent_launches, pack_arguments
from autotune.cuda.program import Program
from autotune.cuda.symbols import placed
from autotune.errors import MissingError, RunnerError
from autotune.families.plan import LaunchPlan, LibraryCall, ParameterType, TensorMap
from autotune.measure.devices import probe
from autotune.measure.runner import Candidate

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from autotune.cuda.textures import Texture

Constants = Mapping[str, "NDArray[Any]"]
"""The contents of `__constant__` variables by their names in C++, without gaps."""

PCI_LENGTH = 32
"""Most characters of a PCI address."""

Run = Callable[[], None]
"""Enqueues all launches of one computation on the session's stream."""

Dim3 = tuple[int, int, int]

S = TypeVar("S", bound="Session")


@dataclass(frozen=True)
class LoadedKernel:
    """A loaded kernel, which `cuda.bindings` launches on a session's stream.

    PyCUDA 2026.1 cannot make all launches. It passes all arguments in one buffer, and kernels
    launched that way did not find their tensor maps (CUDA 13.0, H100: C stayed unchanged, or an
    illegal instruction); with one pointer for each argument they do. It sets no launch attributes,
    which dependent launches need.

    Attributes:
        cuda: `cuda.bindings.driver`.
        checked: returns the value of a call, or raises if its status is not success.
        function: the CUfunction, which lives as long as the process.
        types: types of its parameters.
        stream: address of the CUstream.
        shared: dynamic shared memory in bytes.
        dependent: whether launches are dependent (programmatic dependent launch).
        cooperative: whether all blocks of a launch are resident at once; it is not dependent then.
    """

    cuda: Any
    checked: Callable[[tuple[Any, ...]], Any] = field(repr=False)
    function: Any
    types: Sequence[ParameterType]
    stream: int
    shared: int
    dependent: bool
    cooperative: bool = False

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
        if self.dependent or self.cooperative:
            kinds, attribute = self.cuda.CUlaunchAttributeID, self.cuda.CUlaunchAttribute()
            if self.cooperative:
                attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
                attribute.value.cooperative = 1
            else:
                attribute.id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                attribute.value.programmaticStreamSerializationAllowed = 1
            configuration.attrs, configuration.numAttrs = [attribute], 1
        return configuration


class TextureObject(NamedTuple):
    """The handle of a texture object, which is never destroyed, its memory, and what is uploaded
    there."""

    handle: int
    memory: SupportsInt
    content: NDArray[Any]


class Mark(Protocol):
    """A point of the stream, at which the GPU notes the time."""

    def time_till(self, end: Any) -> float:
        """Milliseconds from here to a later mark; both have been reached."""

    def synchronize(self) -> None:
        """Waits until the stream has reached it."""


class Session(ABC):
    """GPU `index`, its primary context and one stream; a context manager.

    The primary context is shared with PyTorch, CuPy and others in this process. Use a session in
    the thread that entered it. Errors of the driver surface as its `Error`.

    Attributes:
        Error: class of the driver's errors.
        MemoryError: class of those for lack of memory, an `Error`.
        device: the GPU's identity and limits, with the clusters that the driver states.
        index: the GPU's number.
        driver: the CUDA version that the driver supports, such as `13.0`.
        stream: address of a CUstream that does not wait for the default stream.
    """

    Error: type[Exception]
    MemoryError: type[Exception]
    stream: int

    def __init__(self, index: int) -> None:
        """Asks the driver for the GPU; `__enter__` makes its context and its stream.

        Raises:
            MissingError: if there is no `cuda.bindings`, no driver or no GPU.
            DeviceError: if there is no GPU of that index.
        """
        self._bindings = bindings.initialised()
        self.index = index
        self.device = probe(index, enter=True)
        version = self.checked(self._bindings.cuDriverGetVersion())
        self.driver = f"{version // 1000}.{version % 1000 // 10}"

    @abstractmethod
    def __enter__(self: S) -> S:
        """Makes the primary context current, and a stream in it."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Takes the context off the thread's stack."""

    def checked(self, answer: tuple[Any, ...]) -> Any:
        """The value of a `cuda.bindings` call, without its status.

        Raises:
            Exception: `Error`, if the status is not success.
        """
        status, *values = answer
        if status:
            out_of_memory = self._bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
            error = self.MemoryError if status == out_of_memory else self.Error
            raise error(bindings.worded(self._bindings, status))
        return values[0] if len(values) == 1 else values

    @abstractmethod
    def synchronize(self) -> None:
        """Waits for the stream."""

    @abstractmethod
    def mark(self) -> Mark:
        """An event, recorded at this point of the stream."""

    @abstractmethod
    def allocate(self, size: int) -> SupportsInt:
        """An allocation of `size` bytes, freed with the object; `int` gives its address."""

    @abstractmethod
    def fill(self, address: int, value: int, count: int, width: int = 4) -> None:
        """Enqueues that `count` elements of `width` bytes (1, 2 or 4) get a value."""

    @abstractmethod
    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueues a copy of `size` bytes on the device."""

    @abstractmethod
    def upload(self, address: int, array: NDArray[Any]) -> None:
        """Enqueues a copy of a contiguous array to the device; the array has to live until then."""

    @abstractmethod
    def download(self, array: NDArray[Any], address: int) -> None:
        """Fills a contiguous array from the device, after the work on the stream."""

    def broken(self) -> bool:
        """Whether an earlier error, such as an illegal access, has broken the context."""
        (status,) = self._bindings.cuCtxSynchronize()
        return bool(status)

    def free_bytes(self) -> int:
        """Bytes of free device memory."""
        return int(self.checked(self._bindings.cuMemGetInfo())[0])

    def pci_address(self) -> str:
        """The GPU's PCI address, such as `0000:3b:00.0`."""
        cuda = self._bindings
        device = self.checked(cuda.cuDeviceGet(self.index))
        address = self.checked(cuda.cuDeviceGetPCIBusId(PCI_LENGTH, device))
        return str(address.partition(b"\0")[0].decode())

    def texture(self, texture: Texture) -> TextureObject:
        """Makes a texture object and enqueues the upload of its array."""
        content = texture.content()
        memory = self.allocate(content.nbytes)
        self.upload(int(memory), content)
        descriptors = texture.descriptors(self._bindings, int(memory))
        handle = self.checked(self._bindings.cuTexObjectCreate(*descriptors, None))
        return TextureObject(int(handle), memory, content)

    @cached_property
    def cublaslt(self) -> CublasLt:
        """cuBLASLt in this context.

        Raises:
            MissingError: if it is not installed.
            RunnerError: if it refuses.
        """
        return CublasLt.load()

    @cached_property
    def cublas(self) -> Cublas:
        """cuBLAS in this context, whose handle holds device memory.

        Raises:
            MissingError: if it is not installed.
            RunnerError: if it refuses.
        """
        return Cublas.load()

    def bind(
        self, candidate: Candidate, constants: Constants | None = None
    ) -> Callable[[Values], Run]:
        """Loads the candidate's programs and fills their `constants`; returns a function that makes
        a run with given values."""
        if candidate.plan.library:
            return partial(self._bind_library, candidate.plan, candidate.plan.library)
        launches = candidate.plan.launches
        dependents = dependent_launches(candidate.plan, self.device)
        kernels = [
            self.load(
                program,
                launch.parameters,
                launch.shared,
                dependent=dependent,
                cooperative=launch.cooperative,
                constants=constants,
            )
            for program, launch, dependent in zip(
                candidate.programs, launches, dependents, strict=True
            )
        ]

        def bound(values: Values) -> Run:
            steps = [
                kernel.step(
                    launch.grid,
                    launch.block,
                    Resolver(launch.arguments)(values, self._encode),
                )
                for kernel, launch in zip(kernels, launches, strict=True)
            ]

            def run() -> None:
                for step in steps:
                    step()

            return run

        return bound

    def _bind_library(self, plan: LaunchPlan, call: LibraryCall, values: Values) -> Run:
        """A run of a library's call; what the library refuses is the candidate's error."""
        try:
            bound = self.cublaslt.bind(call, values)
        except RunnerError as error:
            raise self.Error(str(error)) from error
        if bound.workspace > plan.workspace:
            raise self.Error(f"{plan.config} takes {bound.workspace} bytes of workspace")

        def run() -> None:
            try:
                bound.enqueue(values, self.stream, plan.workspace)
            except RunnerError as error:
                raise self.Error(str(error)) from error

        return run

    def _encode(self, tensor_map: TensorMap, values: Values) -> bytes:
        return launches.TensorMapEncoder(self._bindings)(tensor_map, values)

    def load(
        self,
        program: Program,
        types: Sequence[ParameterType],
        shared: int,
        *,
        dependent: bool = False,
        constants: Constants | None = None,
        cooperative: bool = False,
    ) -> LoadedKernel:
        """Loads a program's kernel, with parameters of these types, for launches on the stream.

        Args:
            program: the program.
            types: types of the kernel's parameters.
            shared: dynamic shared memory in bytes.
            dependent: whether launches are dependent (programmatic dependent launch).
            cooperative: whether all blocks of a launch are resident at once.
            constants: the contents of variables, which no kernel can write, so that they are
                uploaded once; each has to live until then.
        """
        cuda, checked = self._bindings, self.checked
        module = checked(cuda.cuModuleLoadData(program.cubin))
        try:
            contents = placed(program, constants or {})
        except ValueError as error:
            raise self.Error(str(error)) from error
        for symbol, array in contents:
            address, _ = checked(cuda.cuModuleGetGlobal(module, symbol.encode()))
            self.upload(int(address), array)
        function = checked(cuda.cuModuleGetFunction(module, program.symbol.encode()))
        limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        checked(cuda.cuFuncSetAttribute(function, limit, shared))
        bound = types, self.stream, shared, dependent, cooperative
        return LoadedKernel(cuda, checked, function, *bound)


NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING: no implicit order with the legacy default stream

Checked = Callable[[tuple[Any, ...]], Any]


class CudaError(Exception):
    """A call of the driver that failed."""


class CudaMemoryError(CudaError):
    """A call of the driver that failed for lack of memory."""


class DriverMemory:
    """Device memory in a context, freed with this object; `int` gives its address."""

    def __init__(self, cuda: Any, context: Any, address: int) -> None:
        self._cuda, self._context, self._address = cuda, context, address

    def __int__(self) -> int:
        return self._address

    def __del__(self) -> None:
        # The session may be over, and another context current.
        if not self._cuda.cuCtxPushCurrent(self._context)[0]:
            self._cuda.cuMemFree(self._address)
            self._cuda.cuCtxPopCurrent()


class DriverEvent:
    """An event of the driver."""

    def __init__(self, cuda: Any, checked: Checked, stream: Any) -> None:
        self._cuda, self._checked = cuda, checked
        self._event = checked(cuda.cuEventCreate(0))
        checked(cuda.cuEventRecord(self._event, stream))

    def time_till(self, end: DriverEvent) -> float:
        return float(self._checked(self._cuda.cuEventElapsedTime(self._event, end._event)))

    def synchronize(self) -> None:
        self._checked(self._cuda.cuEventSynchronize(self._event))

    def __del__(self) -> None:
        if (event := vars(self).get("_event")) is not None:
            self._cuda.cuEventDestroy(event)


class BindingsSession(Session):
    """A session whose errors are `CudaError`.

    Memory comes from `cuMemAlloc`: what a process frees is free for the other process at once, as
    a stream-ordered pool, such as that of `cuda.core`, would not have it.
    """

    Error = CudaError
    MemoryError = CudaMemoryError

    def __enter__(self) -> BindingsSession:
        cuda = self._bindings
        device = self.checked(cuda.cuDeviceGet(self.index))
        # Never released: memory that outlives the session is freed in it.
        self._context = self.checked(cuda.cuDevicePrimaryCtxRetain(device))
        self.checked(cuda.cuCtxPushCurrent(self._context))
        self._stream = self.checked(cuda.cuStreamCreate(NON_BLOCKING))
        self.stream = int(self._stream)
        return self

    def __exit__(self, *_: object) -> None:
        self._bindings.cuStreamDestroy(self._stream)
        self.checked(self._bindings.cuCtxPopCurrent())

    def synchronize(self) -> None:
        self.checked(self._bindings.cuStreamSynchronize(self._stream))

    def mark(self) -> Mark:
        return DriverEvent(self._bindings, self.checked, self._stream)

    def allocate(self, size: int) -> SupportsInt:
        address = int(self.checked(self._bindings.cuMemAlloc(size)))
        return DriverMemory(self._bindings, self._context, address)

    def fill(self, address: int, value: int, count: int, width: int = 4) -> None:
        memset = getattr(self._bindings, f"cuMemsetD{8 * width}Async")
        self.checked(memset(address, value, count, self._stream))

    def copy(self, target: int, source: int, size: int) -> None:
        self.checked(self._bindings.cuMemcpyDtoDAsync(target, source, size, self._stream))

    def upload(self, address: int, array: NDArray[Any]) -> None:
        copy = self._bindings.cuMemcpyHtoDAsync
        self.checked(copy(address, array.ctypes.data, array.nbytes, self._stream))

    def download(self, array: NDArray[Any], address: int) -> None:
        self.synchronize()
        copy = self._bindings.cuMemcpyDtoH
        self.checked(copy(array.ctypes.data, address, array.nbytes))


def pycuda() -> Any:
    """PyCUDA's driver interface, initialised.

    Raises:
        MissingError: if PyCUDA, the NVIDIA driver or a GPU is missing.
    """
    try:
        import pycuda.driver as cuda
    except ModuleNotFoundError as error:
        raise MissingError(
            f'no PyCUDA ({error}); run `pip install "tile-autotune[gpu]"`, or unset '
            "AUTOTUNE_SESSION to do without"
        ) from error
    except ImportError as error:
        raise MissingError(
            f"PyCUDA cannot be loaded: {error}; libcuda comes with the NVIDIA driver, "
            "other libraries with the CUDA toolkit that PyCUDA was built for"
        ) from error
    try:
        cuda.init()
    except cuda.Error as error:
        raise MissingError(f"no usable GPU: {error}; `nvidia-smi` lists the GPUs") from error
    return cuda


class PyCudaSession(Session):
    """A session whose errors are PyCUDA's.

    Kernels and graphs go through `cuda.bindings`, as in every session, in the same context and on
    the same stream.
    """

    def __init__(self, index: int = 0) -> None:
        self._cuda = pycuda()
        self.Error, self.MemoryError = self._cuda.Error, self._cuda.MemoryError
        super().__init__(index)

    def __enter__(self) -> PyCudaSession:
        self._context = self._cuda.Device(self.index).retain_primary_context()
        self._context.push()
        self._stream = self._cuda.Stream(NON_BLOCKING)
        self.stream = int(self._stream.handle)
        return self

    def __exit__(self, *_: object) -> None:
        del self._stream
        # PyCUDA 2026.1 never takes a primary context that it releases off the thread's stack.
        self.checked(self._bindings.cuCtxPopCurrent())
        self._context.detach()

    def synchronize(self) -> None:
        self._stream.synchronize()

    def mark(self) -> Mark:
        event: Mark = self._cuda.Event().record(self._stream)
        return event

    def allocate(self, size: int) -> SupportsInt:
        allocation: SupportsInt = self._cuda.mem_alloc(size)
        return allocation

    def fill(self, address: int, value: int, count: int, width: int = 4) -> None:
        memset = getattr(self._cuda, f"memset_d{8 * width}_async")
        memset(address, value, count, self._stream)

    def copy(self, target: int, source: int, size: int) -> None:
        self._cuda.memcpy_dtod_async(target, source, size, self._stream)

    def upload(self, address: int, array: NDArray[Any]) -> None:
        self._cuda.memcpy_htod_async(address, array, self._stream)

    def download(self, array: NDArray[Any], address: int) -> None:
        self._stream.synchronize()
        self._cuda.memcpy_dtoh(array, address)


def open_session(index: int = 0) -> Session:
    """A session on GPU `index`: through PyCUDA where it can be imported, else `cuda.bindings`.

    `AUTOTUNE_SESSION` names one of the two.

    Raises:
        MissingError: if the library, the driver or a GPU is missing.
        DeviceError: if there is no GPU of that index.
    """
    name = settings.session() or ("pycuda" if _has_pycuda() else "bindings")
    return PyCudaSession(index) if name == "pycuda" else BindingsSession(index)


def _has_pycuda() -> bool:
    """Whether PyCUDA can be imported; a build for another toolkit cannot."""
    try:
        import pycuda.driver  # noqa: F401
    except ImportError:
        return False
    return True
