"""A fake PyCUDA on the fake GPU."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from numpy.typing import NDArray

from support.fake_gpu import FakeGpu

INDEX_LIMIT = 2**31


class Error(Exception):
    """An error of PyCUDA."""


class LogicError(Error):
    """An error of most calls."""


class OutOfMemoryError(Error):
    """`MemoryError` of PyCUDA."""


def checked(answer: tuple[Any, ...]) -> Any:
    status, *values = answer
    if status:
        raise (OutOfMemoryError if status == 2 else LogicError)(f"failed: {status}")
    return values[0] if values else None


class Memory:
    """An allocation."""

    def __init__(self, gpu: FakeGpu, size: int) -> None:
        self._gpu, self._address = gpu, checked(gpu.cuMemAlloc(size))

    def __int__(self) -> int:
        return int(self._address)

    def __del__(self) -> None:
        if "_address" in vars(self):
            self._gpu.cuMemFree(self._address)


class Stream:
    """A stream."""

    def __init__(self, gpu: FakeGpu, flags: int) -> None:
        self._gpu, self.handle = gpu, checked(gpu.cuStreamCreate(flags))

    def synchronize(self) -> None:
        self._gpu.cuStreamSynchronize(self.handle)

    def __del__(self) -> None:
        self._gpu.cuStreamDestroy(self.handle)


class Event:
    """An event."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu, self._event = gpu, checked(gpu.cuEventCreate(0))

    def record(self, stream: Stream) -> Event:
        checked(self._gpu.cuEventRecord(self._event, stream.handle))
        return self

    def time_till(self, end: Event) -> float:
        return float(checked(self._gpu.cuEventElapsedTime(self._event, end._event)))

    def synchronize(self) -> None:
        self._gpu.cuEventSynchronize(self._event)


def module(gpu: FakeGpu) -> Any:
    """`pycuda.driver` on a fake GPU."""
    cuda: Any = ModuleType("pycuda.driver")

    def primary() -> SimpleNamespace:
        context = checked(gpu.cuDevicePrimaryCtxRetain(0))
        return SimpleNamespace(push=lambda: gpu.cuCtxPushCurrent(context), detach=lambda: None)

    def upload(address: int, array: NDArray[Any], stream: Stream) -> None:
        at = array.ctypes.data
        checked(gpu.cuMemcpyHtoDAsync(address, at, array.nbytes, stream.handle))

    def copy(target: int, source: int, size: int, stream: Stream) -> None:
        checked(gpu.cuMemcpyDtoDAsync(target, source, size, stream.handle))

    def download(array: NDArray[Any], address: int) -> None:
        checked(gpu.cuMemcpyDtoH(array.ctypes.data, address, array.nbytes))

    def memset(bits: int) -> Any:
        def enqueue(address: int, value: int, count: int, stream: Stream) -> None:
            assert count < INDEX_LIMIT, "PyCUDA takes 32-bit counts"
            checked(getattr(gpu, f"cuMemsetD{bits}Async")(address, value, count, stream.handle))

        return enqueue

    vars(cuda).update(
        init=lambda: None,
        Error=Error,
        LogicError=LogicError,
        MemoryError=OutOfMemoryError,
        Device=lambda _: SimpleNamespace(retain_primary_context=primary),
        Stream=lambda flags: Stream(gpu, flags),
        Event=lambda: Event(gpu),
        mem_alloc=lambda size: Memory(gpu, size),
        memcpy_htod_async=upload,
        memcpy_dtod_async=copy,
        memcpy_dtoh=download,
        **{f"memset_d{bits}_async": memset(bits) for bits in (8, 16, 32)},
    )
    return cuda


def install(gpu: FakeGpu, patch: pytest.MonkeyPatch) -> None:
    """Installs a fake PyCUDA on a fake GPU."""
    package: Any = ModuleType("pycuda")
    package.driver = module(gpu)
    patch.setitem(sys.modules, "pycuda", package)
    patch.setitem(sys.modules, "pycuda.driver", package.driver)
