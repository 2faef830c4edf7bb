"""The functions of the CUDA driver that launching needs, through `cuda.bindings`."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from autotune.cuda import bindings
from autotune.cuda.bindings import entry_point
from autotune.cuda.launches import TensorMapEncoder
from autotune.device import Device
from autotune.errors import RunnerError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
# CUlaunchConfig of cuda.h: grid, block, shared memory, stream, attributes and their number.
_CONFIGURATION = struct.Struct("@7I4xPPI4x")

# CUlaunchAttribute of cuda.h, which has 64 bytes for a value:
# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 1. Configurations hold its address.
_DEPENDENT = ctypes.create_string_buffer(struct.pack("@i4xi60x", 6, 1))


def configuration(
    grid: Sequence[int], block: Sequence[int], shared: int, stream: int, dependent: bool = False
) -> ctypes.Array[ctypes.c_char]:
    """The launch configuration that `Driver.launch` takes. Nothing changes it later, so threads may
    share it. A `dependent` kernel may start before its predecessor on the stream has ended."""
    attributes = (ctypes.addressof(_DEPENDENT), 1) if dependent else (0, 0)
    packed = _CONFIGURATION.pack(*grid, *block, shared, stream, *attributes)
    return ctypes.create_string_buffer(packed, len(packed))


class Driver:
    """Calls of the driver, with their status checked.

    Kernels are loaded as libraries, which belong to no context: the driver loads them into the
    context of each launch, be it the primary one of PyTorch and CuPy or PyCUDA's own.

    Args:
        cuda: `cuda.bindings.driver`, initialised, or a stand-in with its functions.

    Attributes:
        context: `cuCtxGetId` itself; for 0 it returns a status and the id of the current context.
        devices: the device of each context seen so far, by the id of the context.
    """

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self.context: Callable[[int], tuple[Any, Any]] = cuda.cuCtxGetId
        # By id, as the driver reuses addresses of contexts but never ids.
        self.devices: dict[Any, int] = {}
        self._primaries: dict[int, Any] = {}

    @classmethod
    def load(cls) -> Driver:
        """The driver of this machine.

        Raises:
            MissingError: if there is no `cuda.bindings`, no driver or no GPU.
        """
        return cls(bindings.initialised())

    def probe(self, ordinal: int) -> Device:
        """The identity and limits of a GPU.

        Raises:
            RunnerError: if there is no such GPU.
        """
        return bindings.described(self._cuda, self._call, ordinal)

    def ordinal(self, address: int) -> int | None:
        """The device that holds an address; None if none does."""
        kind = self._cuda.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
        status, ordinal = self._cuda.cuPointerGetAttribute(kind, address)
        return None if status else int(ordinal)

    def current(self) -> int | None:
        """The device of the calling thread's current context; None if there is none."""
        status, context = self.context(0)
        return None if status else self._device_of(context)

    def context_on(self, ordinal: int) -> int | None:
        """The id of the current context if it is on the device, else None."""
        status, context = self.context(0)
        if status:
            return None
        device = self.devices.get(context)
        if device is None:
            device = self._device_of(context)
        return context if device == ordinal else None

    @contextmanager
    def entered(self, ordinal: int) -> Iterator[None]:
        """Makes the device's primary context current within a `with` block."""
        primary = self._primaries.get(ordinal)
        if primary is None:
            device = self._call(self._cuda.cuDeviceGet, ordinal)
            primary = self._call(self._cuda.cuDevicePrimaryCtxRetain, device)
            # Never released: kernels and scratch memory live in it.
            self._primaries[ordinal] = primary
        self._call(self._cuda.cuCtxPushCurrent, primary)
        try:
            yield
        finally:
            self._call(self._cuda.cuCtxPopCurrent)

    def load_kernel(self, cubin: bytes, symbol: str, ordinal: int, dynamic_shared: int) -> int:
        """The handle of a kernel in a cubin, which may use that many bytes of dynamic shared memory
        a block.

        Raises:
            RunnerError: if the device cannot run it.
        """
        cuda = self._cuda
        with self._relaxed():
            library = self._call(cuda.cuLibraryLoadData, cubin, [], [], 0, [], [], 0)
            kernel = self._call(cuda.cuLibraryGetKernel, library, symbol.encode())
            device = self._call(cuda.cuDeviceGet, ordinal)
            limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(cuda.cuKernelSetAttribute, limit, dynamic_shared, kernel, device)
            # Otherwise the first launch would load it, and that may be inside a graph capture.
            self._call(cuda.cuKernelGetFunction, kernel)
        return int(kernel)

    @cached_property
    def entry_points(self) -> tuple[int, int]:
        """The addresses of `cuCtxGetId` and `cuLaunchKernelEx`."""
        functions = ("cuCtxGetId", 12000), ("cuLaunchKernelEx", 11080)
        identify, launch = (entry_point(self._cuda, *function) for function in functions)
        return identify, launch

    @cached_property
    def launch(self) -> Callable[[Any, int, int, None], int]:
        """`cuLaunchKernelEx` itself, as a wrapper would cost as much again. It takes a
        `configuration`, a kernel, the address of its array of argument pointers and None, and
        returns the status."""
        return _LAUNCH(self.entry_points[1])

    @cached_property
    def encode(self) -> TensorMapEncoder:
        """The encoder of tensor maps.

        Raises:
            RunnerError: if the driver does not have it.
        """
        return TensorMapEncoder(self._cuda)

    def allocate(self, size: int) -> int:
        """The address of `size` new bytes in the current context; allowed during a capture."""
        with self._relaxed():
            return int(self._call(self._cuda.cuMemAlloc, size))

    def free(self, address: int) -> None:
        """Frees what `allocate` returned."""
        self._call(self._cuda.cuMemFree, address)

    def upload(self, address: int, array: NDArray[Any]) -> None:
        """Copies a contiguous array to the device."""
        self._call(self._cuda.cuMemcpyHtoD, address, array.ctypes.data, array.nbytes)

    def download(self, array: NDArray[Any], address: int) -> None:
        """Fills a contiguous array from the device, after the work on the default stream."""
        self._call(self._cuda.cuMemcpyDtoH, array.ctypes.data, address, array.nbytes)

    def clear(self, address: int, words: int, stream: int) -> None:
        """Enqueues the zeroing of that many 32-bit words; a capture records it in its graph."""
        self._call(self._cuda.cuMemsetD32Async, address, 0, words, stream)

    def capture(self, stream: int) -> int:
        """The id of the capture that a stream is part of; 0 if it is in none."""
        if not self._call(self._cuda.cuStreamIsCapturing, stream):
            return 0
        return int(self._call(self._cuda.cuStreamGetCaptureInfo, stream)[1])

    def failed(self, function: str, status: Any) -> RunnerError:
        """The error of a call that gave `status`."""
        return RunnerError(f"{function} gave {bindings.worded(self._cuda, status)}")

    def _device_of(self, context: int) -> int:
        """The device of the current context, which has that id."""
        return self.devices.setdefault(context, int(self._call(self._cuda.cuCtxGetDevice)))

    @contextmanager
    def _relaxed(self) -> Iterator[None]:
        """Lets the thread allocate and load during a graph capture, which records neither."""
        mode = self._cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        previous = self._call(self._cuda.cuThreadExchangeStreamCaptureMode, mode)
        try:
            yield
        finally:
            self._call(self._cuda.cuThreadExchangeStreamCaptureMode, previous)

    def _call(self, function: Callable[..., tuple[Any, ...]], *arguments: Any) -> Any:
        status, *values = function(*arguments)
        if status:
            raise self.failed(function.__name__, status)
        return values[0] if len(values) == 1 else values
