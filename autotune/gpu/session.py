"""One GPU as the tuning process uses it: memory, kernels, launches, events.

`pycuda_session` and `bindings_session` implement it. `opening` chooses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, SupportsInt, TypeVar

from autotune.cuda import bindings, launches
from autotune.cuda.launches import Resolver, Values, dependent_launches
from autotune.cuda.program import Program
from autotune.families.plan import ArgumentType, Launch, ParameterType, Resources, TensorMap
from autotune.gpu.driver_kernels import Dim3, DriverKernel
from autotune.gpu.nvml import EnergyCounter, open_counter
from autotune.gpu.probing import probe
from autotune.runners.base import Candidate

if TYPE_CHECKING:
    from numpy.typing import NDArray

PCI_LENGTH = 32
"""Most characters of a PCI address."""

Run = Callable[[], None]
"""Enqueues all launches of one computation on the session's stream."""

S = TypeVar("S", bound="Session")


class LoadedKernel(Protocol):
    """A kernel with its stream and its dynamic shared memory."""

    def enqueue(self, grid: Dim3, block: Dim3, *arguments: int | float | bytes) -> None:
        """Enqueues one launch."""

    def step(self, grid: Dim3, block: Dim3, arguments: Sequence[int | float | bytes]) -> Run:
        """A function that enqueues this launch each time it is called."""

    def attribute(self, name: str) -> int:
        """An attribute of the function, such as `NUM_REGS`, from the driver."""


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
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Takes the context off the thread's stack."""

    def checked(self, answer: tuple[Any, ...]) -> Any:
        """The value of a `cuda.bindings` call, without its status.

        Raises:
            Exception: `Error`, if the status is not success.
        """
        status, *values = answer
        if status:
            raise self._failure(status)
        return values[0] if len(values) == 1 else values

    @abstractmethod
    def _failure(self, status: Any) -> Exception:
        """The error for a status of the driver: an `Error`."""

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
    def upload(self, address: int, array: NDArray[Any]) -> None:
        """Enqueues a copy of a contiguous array to the device; the array has to live until then."""

    @abstractmethod
    def download(self, array: NDArray[Any], address: int) -> None:
        """Fills a contiguous array from the device, after the work on the stream."""

    @abstractmethod
    def load(self, program: Program, types: Sequence[ArgumentType], shared: int) -> LoadedKernel:
        """Loads a program's kernel for launches with `shared` bytes of dynamic shared memory.

        Not for kernels that take tensor maps or structs.
        """

    def broken(self) -> bool:
        """Whether an earlier error, such as an illegal access, has broken the context."""
        (status,) = self._bindings.cuCtxSynchronize()
        return bool(status)

    def free_bytes(self) -> int:
        """Bytes of free device memory."""
        return int(self.checked(self._bindings.cuMemGetInfo())[0])

    def energy_counter(self) -> EnergyCounter:
        """The counter of the GPU's energy.

        Raises:
            MissingError: if there is none.
        """
        cuda = self._bindings
        device = self.checked(cuda.cuDeviceGet(self.index))
        address = self.checked(cuda.cuDeviceGetPCIBusId(PCI_LENGTH, device))
        return open_counter(address.partition(b"\0")[0].decode())

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
        """Resident blocks of an SM, from the driver's occupancy calculator."""
        cuda, checked = self._bindings, self.checked
        attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        module = checked(cuda.cuModuleLoadData(program.cubin))
        try:
            function = checked(cuda.cuModuleGetFunction(module, program.symbol.encode()))
            checked(cuda.cuFuncSetAttribute(function, attribute, launch.shared))
            query = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
            return int(checked(query(function, launch.threads, launch.shared)))
        finally:
            checked(cuda.cuModuleUnload(module))

    def _loaded(self, program: Program, launch: Launch, dependent: bool = False) -> LoadedKernel:
        types = [type for type in launch.parameters if isinstance(type, str)]
        structs = len(types) < len(launch.parameters)
        if structs or "tensor_map" in types or dependent:
            return self._driver_kernel(program, launch.parameters, launch.shared, dependent)
        return self.load(program, types, launch.shared)

    def _driver_kernel(
        self,
        program: Program,
        types: Sequence[ParameterType],
        shared: int,
        dependent: bool = False,
    ) -> DriverKernel:
        return DriverKernel.load(
            *(self._bindings, self.checked, program.cubin, program.symbol),
            types=types,
            stream=self.stream,
            shared=shared,
            dependent=dependent,
        )

    def _encode(self, tensor_map: TensorMap, values: Values) -> bytes:
        return launches.TensorMapEncoder(self._bindings)(tensor_map, values)
