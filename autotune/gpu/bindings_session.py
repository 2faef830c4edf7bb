"""The session through `cuda.bindings`, which needs nothing but a driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsInt

from autotune.cuda import bindings
from autotune.cuda.program import Program
from autotune.families.plan import ArgumentType
from autotune.gpu.driver_kernels import DriverKernel
from autotune.gpu.session import Mark, Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        """Milliseconds from here to a later event; both have been reached."""
        return float(self._checked(self._cuda.cuEventElapsedTime(self._event, end._event)))

    def synchronize(self) -> None:
        """Waits until the stream has reached it."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bindings.cuStreamDestroy(self._stream)
        self.checked(self._bindings.cuCtxPopCurrent())

    def _failure(self, status: Any) -> Exception:
        out_of_memory = self._bindings.CUresult.CUDA_ERROR_OUT_OF_MEMORY
        error = CudaMemoryError if status == out_of_memory else CudaError
        return error(bindings.worded(self._bindings, status))

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

    def upload(self, address: int, array: NDArray[Any]) -> None:
        copy = self._bindings.cuMemcpyHtoDAsync
        self.checked(copy(address, array.ctypes.data, array.nbytes, self._stream))

    def download(self, array: NDArray[Any], address: int) -> None:
        self.synchronize()
        copy = self._bindings.cuMemcpyDtoH
        self.checked(copy(array.ctypes.data, address, array.nbytes))

    def load(self, program: Program, types: Sequence[ArgumentType], shared: int) -> DriverKernel:
        return self._driver_kernel(program, types, shared)
