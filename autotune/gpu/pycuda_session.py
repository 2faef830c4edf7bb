"""The session through PyCUDA."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, SupportsInt

from autotune.cuda.launches import FORMATS
from autotune.cuda.program import Program
from autotune.errors import MissingError
from autotune.families.plan import ArgumentType
from autotune.gpu.driver_kernels import Dim3
from autotune.gpu.session import Mark, Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
        raise MissingError(f"no usable GPU: {error}; `nvidia-smi` shows what is there") from error
    return cuda


@dataclass(frozen=True)
class PyCudaKernel:
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


class PyCudaSession(Session):
    """A session whose errors are PyCUDA's.

    PyCUDA has no tensor maps, dependent launches, graphs and occupancy; those go through
    `cuda.bindings` in the same context and on the same stream.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        del self._stream
        # PyCUDA 2026.1 never takes a primary context that it releases off the thread's stack.
        self.checked(self._bindings.cuCtxPopCurrent())
        self._context.detach()

    def _failure(self, status: Any) -> Exception:
        error: Exception = self._cuda.LogicError(f"{status.name} ({status.value})")
        return error

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

    def upload(self, address: int, array: NDArray[Any]) -> None:
        self._cuda.memcpy_htod_async(address, array, self._stream)

    def download(self, array: NDArray[Any], address: int) -> None:
        self._stream.synchronize()
        self._cuda.memcpy_dtoh(array, address)

    def load(self, program: Program, types: Sequence[ArgumentType], shared: int) -> PyCudaKernel:
        function = self._cuda.module_from_buffer(program.cubin).get_function(program.symbol)
        limit = self._cuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        function.set_attribute(limit, shared)
        function.prepare("".join(FORMATS[name] for name in types))
        return PyCudaKernel(function, self._stream, shared)
