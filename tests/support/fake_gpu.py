"""A fake GPU for sessions: the functions of `cuda.bindings.driver` that a session calls.

Device memory is host memory. Work on the stream waits until somebody synchronises. The kernel of
every module is `put`: it stores its arguments as doubles and counts its launches in the last.
"""

# The names and the arguments are the driver's; the fake ignores some.
# ruff: noqa: ARG002

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from cuda.bindings import driver as real

from autotune.cuda import bindings, launches
from autotune.families.plan import ArgumentType
from support.fake_driver import MEMORY, FakeCuda, Status

TYPES: tuple[ArgumentType, ...] = ("pointer", "i32", "i64", "f32", "f64")
SYMBOL = "put"
MOST_THREADS = 1024
LAUNCH_US = 250.0
ATTRIBUTES = {"NUM_REGS": 24, "SHARED_SIZE_BYTES": 16, "LOCAL_SIZE_BYTES": 0}
RESIDENT = 8


class FakeGpu(FakeCuda):
    """The driver of machines with sessions.

    Attributes:
        now: microseconds that the GPU has worked.
        queue: the work on the stream.
        lost: whether an error has broken the context.
        streams, events: handles that are not destroyed.
    """

    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic shared",
        **{f"CU_FUNC_ATTRIBUTE_{name}": name for name in ATTRIBUTES},
    )

    def cuDeviceGetPCIBusId(self, length: int, device: int) -> Any:
        return Status.CUDA_SUCCESS, b"0000:3b:00.0".ljust(length, b"\0")

    def __init__(self) -> None:
        super().__init__(devices=1)
        self.now = 0.0
        self.queue: list[Callable[[], object]] = []
        self.lost = False
        self.free = MEMORY
        self.streams: set[int] = set()
        self.events: dict[int, float] = {}
        self._handles = iter(range(16, 10**6))

    def cuDeviceGetCount(self) -> Any:
        return 0, self.devices

    def cuCtxGetCurrent(self) -> Any:
        return 0, self._stack[-1] if self._stack else 0

    def cuCtxSynchronize(self) -> Any:
        self._work()
        return (Status.CUDA_ERROR_LAUNCH_FAILED if self.lost else 0,)

    def cuMemGetInfo(self) -> Any:
        return 0, self.free, MEMORY

    def cuMemAlloc(self, size: int) -> Any:
        if size > self.free:
            return Status.CUDA_ERROR_OUT_OF_MEMORY, None
        block = np.zeros(size, np.uint8)
        self.free -= size
        self.allocations[block.ctypes.data] = block  # type: ignore[assignment]
        return 0, block.ctypes.data

    def cuMemFree(self, address: int) -> Any:
        assert self._stack, "freed without a context"
        self.free += self.allocations.pop(address).nbytes
        return (0,)

    def cuMemcpyHtoDAsync(self, address: int, source: int, size: int, stream: int) -> Any:
        return self._enqueued(stream, lambda: ctypes.memmove(address, source, size))

    def cuMemcpyDtoDAsync(self, target: int, source: int, size: int, stream: int) -> Any:
        return self._enqueued(stream, lambda: ctypes.memmove(target, source, size))

    def cuMemcpyDtoH(self, target: int, address: int, size: int) -> Any:
        assert not self.queue, "a copy that does not wait for the stream"
        ctypes.memmove(target, address, size)
        return (0,)

    def cuMemsetD8Async(self, address: int, value: int, count: int, stream: int) -> Any:
        return self._enqueued(stream, lambda: ctypes.memset(address, value, count))

    def cuMemsetD16Async(self, address: int, value: int, count: int, stream: int) -> Any:
        return self._enqueued(stream, lambda: _store(ctypes.c_uint16, address, value, count))

    def cuMemsetD32Async(self, address: int, value: int, count: int, stream: int) -> Any:
        return self._enqueued(stream, lambda: _store(ctypes.c_uint32, address, value, count))

    def cuStreamCreate(self, flags: int) -> Any:
        assert flags == real.CUstream_flags.CU_STREAM_NON_BLOCKING
        self.streams.add(handle := next(self._handles))
        return 0, handle

    def cuStreamDestroy(self, stream: int) -> Any:
        self.streams.remove(stream)
        return (0,)

    def cuStreamSynchronize(self, stream: int) -> Any:
        self._work()
        return (0,)

    def cuEventCreate(self, flags: int) -> Any:
        self.events[handle := next(self._handles)] = np.nan
        return 0, handle

    def cuEventRecord(self, event: int, stream: int) -> Any:
        return self._enqueued(stream, lambda: self.events.update({event: self.now}))

    def cuEventElapsedTime(self, start: int, end: int) -> Any:
        assert not self.queue, "the events have not been reached"
        return 0, (self.events[end] - self.events[start]) / 1e3

    def cuEventSynchronize(self, event: int) -> Any:
        self._work()
        return (0,)

    def cuEventDestroy(self, event: int) -> Any:
        del self.events[event]
        return (0,)

    def cuModuleGetFunction(self, module: int, symbol: bytes) -> Any:
        found = symbol in (SYMBOL.encode(), b"idle")
        return (0, 8) if found else (Status.CUDA_ERROR_INVALID_VALUE, None)

    def cuFuncSetAttribute(self, function: int, attribute: str, value: int) -> Any:
        self.limits[SYMBOL] = value
        return (0,)

    def cuFuncGetAttribute(self, attribute: str, function: int) -> Any:
        return 0, ATTRIBUTES[attribute]

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: int) -> Any:
        return 0, RESIDENT

    def cuLaunchKernelEx(self, config: Any, function: int, parameters: int, extra: int) -> Any:
        block = config.blockDimX, config.blockDimY, config.blockDimZ
        formats = [launches.FORMATS[type] for type in TYPES]
        pointers = (ctypes.c_void_p * len(TYPES)).from_address(parameters)
        pairs = zip(formats, pointers, strict=True)
        values = [struct.unpack(f, ctypes.string_at(at, struct.calcsize(f)))[0] for f, at in pairs]
        return self.put(int(config.hStream), block, config.sharedMemBytes, values)

    def put(self, stream: int, block: tuple[int, ...], shared: int, values: list[Any]) -> Any:
        """Enqueues a launch of the kernel."""
        if np.prod(block) > MOST_THREADS or shared > self.limits[SYMBOL]:
            return (Status.CUDA_ERROR_INVALID_VALUE,)
        address, *numbers = values

        def run() -> None:
            out = np.ctypeslib.as_array((ctypes.c_double * len(TYPES)).from_address(address))
            out[:-1], out[-1] = numbers, out[-1] + 1
            self.now += LAUNCH_US

        return self._enqueued(stream, run)

    def _enqueued(self, stream: int, work: Callable[[], object]) -> Any:
        assert stream in self.streams, "work outside the session's stream"
        assert self._stack, "work without a context"
        self.queue.append(work)
        return (0,)

    def _work(self) -> None:
        while self.queue:
            self.queue.pop(0)()


def _store(kind: Any, address: int, value: int, count: int) -> None:
    (kind * count).from_address(address)[:] = [value] * count


def install(gpu: FakeGpu, patch: pytest.MonkeyPatch) -> FakeGpu:
    """Makes a fake GPU that of this machine."""
    patch.setattr(bindings, "initialised", lambda: gpu)
    return gpu
