"""A fake GPU on NumPy: the functions of `cuda.bindings.driver` that the runtime calls.

Device memory is host memory. A kernel is a Python function that reads its arguments from the
buffer of the launch, and has finished when the launch returns. All calls are recorded.
"""

# The signatures are the driver's; the fake ignores some parameters.
# ruff: noqa: ARG002

from __future__ import annotations

import ctypes
import struct
import threading
import time
from collections.abc import Callable
from enum import IntEnum
from functools import wraps
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
from cuda.bindings import driver as real
from numpy.lib.stride_tricks import as_strided

from autotune.cuda import bindings
from autotune.measure.oracle import activated, gates
from autotune.problem import ELEMENT_TYPES, EPILOGUES, SCALES
from autotune.problem.fields import ACTIVATIONS
from support.numpy_types import STORED, decoded, encoded, name_of
from support.quantising import quantised

Matrix = npt.NDArray[np.float32]
Method = TypeVar("Method", bound=Callable[..., Any])

# The attributes of an H100 SXM, as deviceQuery prints them.
H100 = {
    "COMPUTE_CAPABILITY_MAJOR": 9,
    "COMPUTE_CAPABILITY_MINOR": 0,
    "MULTIPROCESSOR_COUNT": 132,
    "WARP_SIZE": 32,
    "MAX_REGISTERS_PER_BLOCK": 65536,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": 65536,
    "MAX_SHARED_MEMORY_PER_BLOCK": 49152,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": 232448,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": 233472,
    "RESERVED_SHARED_MEMORY_PER_BLOCK": 1024,
    "MAX_THREADS_PER_BLOCK": 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": 2048,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": 32,
    "L2_CACHE_SIZE": 52428800,
    "CLOCK_RATE": 1980000,
    "MEMORY_CLOCK_RATE": 2619000,
    "GLOBAL_MEMORY_BUS_WIDTH": 5120,
}
MEMORY = 85_000_000_000
CLUSTERS = {2: 66, 4: 31, 8: 15}

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
_IDENTIFY = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_ulonglong))
# CUlaunchConfig of cuda.h: grid, block, shared memory, stream, attributes and their number.
_CONFIGURATION = struct.Struct("@7I4xPPI4x")
# CUlaunchAttribute of cuda.h with a number as its value.
_ATTRIBUTE = struct.Struct("@i4xi60x")
_COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION = 2, 6


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_INVALID_VALUE = 1
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_DEVICE = 101
    CUDA_ERROR_INVALID_CONTEXT = 201
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900


class Shape(NamedTuple):
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    dependent: bool = False


class Launch(NamedTuple):
    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared: int
    stream: int
    dependent: bool
    context: int
    arguments: tuple[Any, ...]


def _recorded(method: Method) -> Method:
    @wraps(method)
    def call(self: FakeCuda, *arguments: Any) -> Any:
        self.calls.append(method.__name__)
        return method(self, *arguments)

    return call  # type: ignore[return-value]


class FakeCuda:
    CUdevice_attribute = SimpleNamespace(
        **{f"CU_DEVICE_ATTRIBUTE_{name}": name for name in bindings.NAMES}
    )
    CUpointer_attribute = SimpleNamespace(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL="ordinal")
    CUfunction_attribute = SimpleNamespace(
        CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES="dynamic shared"
    )
    CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_RELAXED="relaxed")
    CUresult = Status
    CUlaunchConfig = real.CUlaunchConfig
    CUlaunchAttribute = real.CUlaunchAttribute
    CUlaunchAttributeID = real.CUlaunchAttributeID

    def __init__(self, devices: int = 2) -> None:
        self._launch, self._identify = _LAUNCH(self._launch_ex), _IDENTIFY(self._context_id)
        self.devices = devices
        self.attributes = dict(H100)
        self.calls: list[str] = []
        self.launches: list[Launch] = []
        self.cooperative: list[bool] = []
        self.allocations: dict[int, Matrix] = {}
        self.limits: dict[str, int] = {}
        self.variables: dict[bytes, int] = {}
        self.zeroed: list[int] = []
        self.captures: dict[int, int] = {}
        self.refuse: Status = Status.CUDA_SUCCESS
        self.wrong: list[Exception] = []
        self._contexts: dict[int, int] = {}
        self._held: list[tuple[Any, int]] = []
        self._kernels: list[str] = []
        self._thread = threading.local()

    # Set up by tests.

    def hold(self, array: Matrix, ordinal: int = 0) -> Matrix:
        """Puts host memory on a device."""
        self._held.append((array, ordinal))
        return array

    def make_context(self, ordinal: int = 0) -> int:
        """A new context on a device, current in this thread."""
        context = 1000 + len(self._contexts)
        self._contexts[context] = ordinal
        self._stack.append(context)
        return context

    @property
    def _stack(self) -> list[int]:
        if not hasattr(self._thread, "stack"):
            self._thread.stack, self._thread.mode = [], "global"
        stack: list[int] = self._thread.stack
        return stack

    # Functions of the driver.

    @_recorded
    def cuInit(self, flags: int) -> Any:
        return (Status.CUDA_SUCCESS if self.devices else Status.CUDA_ERROR_NO_DEVICE,)

    def cuGetErrorString(self, status: Status) -> Any:
        return 0, b"as the driver words it"

    @_recorded
    def cuDeviceGet(self, ordinal: int) -> Any:
        if ordinal >= self.devices:
            return Status.CUDA_ERROR_INVALID_DEVICE, None
        return 0, ordinal

    @_recorded
    def cuDeviceGetName(self, length: int, device: int) -> Any:
        return 0, b"NVIDIA H100 80GB HBM3".ljust(length, b"\0")

    @_recorded
    def cuDeviceTotalMem(self, device: int) -> Any:
        return 0, MEMORY

    @_recorded
    def cuDeviceGetAttribute(self, attribute: str, device: int) -> Any:
        return 0, self.attributes[attribute]

    @_recorded
    def cuPointerGetAttribute(self, attribute: str, address: int) -> Any:
        for array, ordinal in self._held:
            start = array.ctypes.data
            if start <= address < start + max(array.nbytes, 1):
                return 0, ordinal
        return Status.CUDA_ERROR_INVALID_VALUE, None

    @_recorded
    def cuCtxGetId(self, context: int) -> Any:
        return (0, self._stack[-1]) if self._stack else (Status.CUDA_ERROR_INVALID_CONTEXT, None)

    @_recorded
    def cuCtxGetDevice(self) -> Any:
        if not self._stack:
            return Status.CUDA_ERROR_INVALID_CONTEXT, None
        return 0, self._contexts[self._stack[-1]]

    @_recorded
    def cuDevicePrimaryCtxGetState(self, device: int) -> Any:
        return 0, 0, int(100 + device in self._contexts)

    @_recorded
    def cuDevicePrimaryCtxRelease(self, device: int) -> Any:
        return (0,)

    def cuDriverGetVersion(self) -> Any:
        return 0, 13_000

    def cuDeviceGetUuid(self, device: int) -> Any:
        return 0, SimpleNamespace(bytes=bytes([device] * 16))

    @_recorded
    def cuModuleLoadData(self, image: bytes) -> Any:
        return (0, 7) if self._stack else (Status.CUDA_ERROR_INVALID_CONTEXT, None)

    @_recorded
    def cuModuleUnload(self, module: int) -> Any:
        return (0,)

    def cuModuleGetFunction(self, module: int, symbol: bytes) -> Any:
        return 0, 8

    def cuFuncSetAttribute(self, function: int, attribute: str, value: int) -> Any:
        return (0,)

    @_recorded
    def cuOccupancyMaxActiveClusters(self, function: int, configuration: Any) -> Any:
        (attribute,) = configuration.attrs
        return 0, CLUSTERS[attribute.value.clusterDim.x]

    @_recorded
    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        self._contexts[100 + device] = device
        return 0, 100 + device

    @_recorded
    def cuCtxPushCurrent(self, context: int) -> Any:
        self._stack.append(context)
        return (0,)

    @_recorded
    def cuCtxPopCurrent(self) -> Any:
        return 0, self._stack.pop()

    @_recorded
    def cuLibraryLoadData(self, cubin: bytes, *options: Any) -> Any:
        return 0, cubin

    @_recorded
    def cuLibraryGetKernel(self, library: bytes, symbol: bytes) -> Any:
        self._kernels.append(symbol.decode())
        return 0, len(self._kernels)

    @_recorded
    def cuLibraryGetGlobal(self, library: bytes, symbol: bytes) -> Any:
        self.variables[symbol] = self.cuMemAlloc(64)[1]
        return 0, self.variables[symbol], 64

    @_recorded
    def cuKernelSetAttribute(self, attribute: str, value: int, kernel: int, device: int) -> Any:
        self.limits[self._kernels[kernel - 1]] = value
        return (0,)

    @_recorded
    def cuKernelGetFunction(self, kernel: int) -> Any:
        return (0, kernel) if self._stack else (Status.CUDA_ERROR_INVALID_CONTEXT, None)

    @_recorded
    def cuThreadExchangeStreamCaptureMode(self, mode: str) -> Any:
        _ = self._stack
        old, self._thread.mode = self._thread.mode, mode
        return 0, old

    @_recorded
    def cuMemAlloc(self, size: int) -> Any:
        if self.captures and self._thread.mode != "relaxed":
            return Status.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, None
        block = np.full((size + 3) // 4, np.nan, np.float32)
        self.allocations[block.ctypes.data] = block
        return 0, block.ctypes.data

    @_recorded
    def cuMemFree(self, address: int) -> Any:
        del self.allocations[address]
        return (0,)

    @_recorded
    def cuMemcpyHtoD(self, address: int, source: int, size: int) -> Any:
        assert size <= 4 * self.allocations[address].size + 3
        ctypes.memmove(address, source, size)
        return (0,)

    @_recorded
    def cuMemcpyDtoH(self, target: int, address: int, size: int) -> Any:
        assert size <= 4 * self.allocations[address].size + 3
        ctypes.memmove(target, address, size)
        return (0,)

    @_recorded
    def cuMemsetD32Async(self, address: int, value: int, words: int, stream: int) -> Any:
        self.zeroed.append(stream)
        self.allocations[address][:words].view(np.uint32)[:] = value
        return (0,)

    @_recorded
    def cuStreamIsCapturing(self, stream: int) -> Any:
        return 0, int(stream in self.captures)

    @_recorded
    def cuStreamGetCaptureInfo(self, stream: int) -> Any:
        return 0, 1, self.captures[stream], None, None, None, 0

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        functions = {
            (b"cuLaunchKernelEx", 11080, 0): self._launch,
            (b"cuCtxGetId", 12000, 0): self._identify,
        }
        return 0, ctypes.cast(functions[name, version, flags], ctypes.c_void_p).value, 0

    def launch(self, kernel: int, parameters: int, shape: Shape) -> None:
        """Runs a kernel; `parameters` is the address of its array of argument pointers."""
        symbol = self._kernels[kernel - 1]
        run, formats = _KERNELS[symbol.partition("<")[0]]
        arguments = _unpack((ctypes.c_void_p * len(formats)).from_address(parameters), formats)
        self.launches.append(Launch(symbol, *shape, self._stack[-1], arguments))
        flags = [int(flag) for flag in symbol.partition("<")[2].rstrip(">").split(", ")]
        for z in range(shape.grid[2]):
            run(z, *arguments, *flags)

    def _context_id(self, context: int | None, identity: Any) -> int:
        """`cuCtxGetId`, called from machine code."""
        assert context is None
        status, identity[0] = self.cuCtxGetId(0) if self._stack else (201, 0)
        return int(status)

    def _launch_ex(self, configuration: int, kernel: int, parameters: int, extra: int) -> int:
        """`cuLaunchKernelEx`. Errors are recorded, as a C callback cannot raise them."""
        self.calls.append("cuLaunchKernelEx")
        time.sleep(0)  # The real function lets other threads run too.
        if self.refuse:
            return self.refuse
        try:
            *sizes, shared, stream, attributes, count = _CONFIGURATION.unpack(
                ctypes.string_at(configuration, _CONFIGURATION.size)
            )
            assert self._stack, "a launch without a context"
            assert not extra
            attribute = _attribute(attributes, count)
            self.cooperative.append(attribute == _COOPERATIVE)
            dependent = attribute == _PROGRAMMATIC_STREAM_SERIALIZATION
            grid, block = tuple(sizes[:3]), tuple(sizes[3:])
            self.launch(kernel, parameters, Shape(grid, block, shared, stream, dependent))
        except Exception as error:
            self.wrong.append(error)
            return Status.CUDA_ERROR_LAUNCH_FAILED
        return 0


def _attribute(attributes: int, count: int) -> int:
    """The attribute that a launch sets to 1; 0 for none."""
    if not count:
        assert not attributes
        return 0
    assert count == 1
    identifier, value = _ATTRIBUTE.unpack(ctypes.string_at(attributes, _ATTRIBUTE.size))
    assert identifier in (_COOPERATIVE, _PROGRAMMATIC_STREAM_SERIALIZATION)
    assert value == 1
    return int(identifier)


_TYPES: dict[str, Any] = {
    "P": ctypes.c_void_p,
    "q": ctypes.c_int64,
    "i": ctypes.c_int32,
    "f": ctypes.c_float,
}


RESIDUAL, GATED = (EPILOGUES.index(name) // 2 for name in ("residual", "swiglu"))
BFLOAT = ELEMENT_TYPES["bf16"].number
_STORED = tuple(STORED.values())  # in the order of the kernels' TYPE argument


def _unpack(parameters: ctypes.Array[ctypes.c_void_p], formats: str) -> tuple[Any, ...]:
    pairs = zip(formats, parameters, strict=True)
    return tuple(_TYPES[format].from_address(pointer).value for format, pointer in pairs)


def _matrix(
    address: int, rows: int, columns: int, ld: int, transposed: int = 0, kind: int = 0
) -> Any:
    """A matrix in memory, whose element type has the number `kind`."""
    dtype = np.dtype(_STORED[kind])
    if transposed:
        rows, columns = columns, rows
    size = ((rows - 1) * ld + columns) * dtype.itemsize
    memory = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address)).view(dtype)
    matrix = as_strided(memory, (rows, columns), (dtype.itemsize * ld, dtype.itemsize))
    return matrix.T if transposed else matrix


def _words(address: int, count: int) -> npt.NDArray[np.uint32]:
    return np.ctypeslib.as_array((ctypes.c_uint32 * count).from_address(address))


def _finish(c: Any, product: Matrix, alpha: float, beta: float) -> Matrix:
    result: Matrix = alpha * product + (beta * c if beta else 0)
    return result


def _activated(result: Matrix, epilogue: int) -> Any:
    if epilogue // 2 == GATED:
        gate, up = gates(result.astype(np.float64))
        return activated(gate, "silu") * up
    return activated(result, (None, *ACTIVATIONS, None)[epilogue // 2])


def _naive(
    z: int, a: int, lda: int, b: int, ldb: int, c: int, ldc: int, m: int, n: int, k: int,
    alpha: float, beta: float, bias: int | None, stride_a: int, stride_b: int, stride_c: int,
    _coalesced: int, trans_a: int, trans_b: int, epilogue: int, kind: int = 0, output: int = 0,
    *, residual: tuple[int | None, int, int] = (None, 0, 0),
) -> None:  # fmt: skip
    size, size_c = (np.dtype(_STORED[type]).itemsize for type in (kind, output))
    left = decoded(_matrix(a + size * z * stride_a, m, k, lda, trans_a, kind))
    right = decoded(_matrix(b + size * z * stride_b, k, n, ldb, trans_b, kind))
    width = n // 2 if epilogue // 2 == GATED else n
    memory = _matrix(c + size_c * z * stride_c, m, width, ldc, kind=output)
    old = decoded(memory) if beta else 0
    result = _finish(old, left @ right, alpha, beta)
    if epilogue % 2:
        assert bias is not None
        result += decoded(_matrix(bias, 1, n, n, kind=output))
    finished = _activated(result, epilogue)
    assert (residual[0] is not None) == (epilogue // 2 == RESIDUAL)
    address, ldr, stride_r = residual
    if address is not None:
        added = _matrix(address + size_c * z * stride_r, m, n, ldr, kind=output)
        finished += decoded(added)
    memory[:] = encoded(finished, name_of(memory))


def _scaled(
    z: int, a: int, lda: int, b: int, ldb: int, c: int, ldc: int, m: int, n: int, k: int,
    alpha: float, beta: float, bias: int | None, scale_a: int | None, scale_b: int | None,
    stride_a: int, stride_b: int, stride_c: int, _b_ready: int, scale_c: int | None,
    amax: int | None, trans_a: int, trans_b: int, epilogue: int, kind_a: int, kind_b: int,
    output: int, scale: int,
    *, residual: tuple[int | None, int, int] = (None, 0, 0),
) -> None:  # fmt: skip
    """The naive kernel on operands of 8 bits."""
    assert (scale_a is not None) == (scale_b is not None) == (scale > 0)
    size_c = np.dtype(_STORED[output]).itemsize
    left = decoded(_matrix(a + z * stride_a, m, k, lda, trans_a, kind_a)).astype(np.float64)
    right = decoded(_matrix(b + z * stride_b, k, n, ldb, trans_b, kind_b)).astype(np.float64)
    blocks, columns = -(-k // 128), -(-n // 128)
    if scale == 1:
        left *= _floats(scale_a, 1)
        right *= _floats(scale_b, 1)
    elif scale == 2:
        left *= _floats(scale_a, m, z)[:, None]
        right *= _floats(scale_b, n, z)
    elif scale == 3:
        of_rows = _floats(scale_a, blocks * m, z).reshape(blocks, m)
        of_columns = _floats(scale_b, columns * blocks, z).reshape(columns, blocks)
        left *= np.repeat(of_rows, 128, axis=0)[:k].T
        right *= np.repeat(np.repeat(of_columns, 128, axis=0)[:n], 128, axis=1)[:, :k].T
    width = n // 2 if epilogue // 2 == GATED else n
    memory = _matrix(c + size_c * z * stride_c, m, width, ldc, kind=output)
    old = decoded(memory) if beta else 0
    result = _finish(old, (left @ right).astype(np.float32), alpha, beta)
    if epilogue % 2:
        assert bias is not None
        result += decoded(_matrix(bias, 1, n, n, kind=BFLOAT if size_c == 1 else output))[0]
    finished = _activated(result, epilogue)
    assert (residual[0] is not None) == (epilogue // 2 == RESIDUAL)
    address, ldr, stride_r = residual
    if address is not None:
        added = _matrix(address + size_c * z * stride_r, m, n, ldr, kind=output)
        finished += decoded(added)
    if amax is not None:
        _floats(amax, 1)[0] = max(_floats(amax, 1)[0], np.abs(finished).max())
    if scale_c is not None:
        finished *= _floats(scale_c, 1)
    memory[:] = encoded(finished, name_of(memory))


def _with_residual(kernel: Callable[..., None], count: int) -> Callable[..., None]:
    """A kernel that takes a residual after `count` other arguments."""

    def run(z: int, *values: Any) -> None:
        kernel(z, *values[:count], *values[count + 3 :], residual=values[count : count + 3])

    return run


def _floats(address: int | None, count: int, z: int = 0) -> npt.NDArray[np.float32]:
    """The z-th `count` numbers at an address."""
    assert address is not None
    start = address + 4 * z * count
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(start))


def _partial(
    _z: int, a: int, lda: int, b: int, ldb: int, workspace: int, m: int, n: int, k: int,
    split: int, counters: int, _: int,
) -> None:  # fmt: skip
    """The two partial products: over the first `split` elements of K, and over the rest."""
    whole_a, whole_b = _matrix(a, m, k, lda), _matrix(b, k, n, ldb)
    parts = _matrix(workspace, 2 * m, n, n)
    parts[:m] = whole_a[:, :split] @ whole_b[:split]
    parts[m:] = whole_a[:, split:] @ whole_b[split:]
    count = _words(counters, 1)
    assert count[0] == 0, "counters are zero at entry"
    count[0] = 2


def _reduce(
    _z: int, workspace: int, c: int, ldc: int, m: int, n: int, alpha: float, beta: float,
    counters: int, _: int,
) -> None:  # fmt: skip
    parts = _matrix(workspace, 2 * m, n, n)
    result = _matrix(c, m, n, ldc)
    result[:] = _finish(result, parts[:m] + parts[m:], alpha, beta)
    _words(counters, 1)[0] = 0


def _largest(
    _z: int, _x: int, _ldx: int, workspace: int, rows: int, columns: int, parts: int, *_: int
) -> None:
    """Marks the parts, which `quantize` looks for."""
    assert rows > 0
    assert columns > 0
    _words(workspace, parts)[:] = 7


def _quantize(
    z: int, x: int, ldx: int, q: int, ldq: int, scales: int, workspace: int | None, rows: int,
    columns: int, parts: int, source: int, target: int, scale: int, split: int, fixed: int,
    vector: int, *_: int,
) -> None:  # fmt: skip
    size = np.dtype(_STORED[source]).itemsize
    pitches = (ldx, ldq) if rows > 1 else ()
    assert not any(step % vector for step in (columns, *pitches, q, x // size))
    element, word = list(ELEMENT_TYPES)[target], SCALES[scale]
    if split:
        assert workspace is not None
        assert (_words(workspace, parts) == 7).all()
    values = decoded(_matrix(x + size * z * rows * ldx, rows, columns, ldx, kind=source))
    number = float(_floats(scales, 1)[0]) if fixed else None
    codes, wanted = quantised(values[None], element, word, number)
    _matrix(q + z * rows * ldq, rows, columns, ldq, kind=target)[:] = codes[0].view(_STORED[target])
    _floats(scales, wanted.size, z)[:] = wanted.ravel()


_KERNELS: dict[str, tuple[Callable[..., None], str]] = {
    "naive": (_naive, "PqPqPqiiiffPqqq"),
    "typed": (_with_residual(_naive, 15), "PqPqPqiiiffPqqqPqq"),
    "scaled": (_with_residual(_scaled, 17), "PqPqPqiiiffPPPqqqPqqiPP"),
    "partial": (_partial, "PqPqPiiiiP"),
    "reduce": (_reduce, "PPqiiffP"),
    "largest": (_largest, "PqPiii"),
    "quantize": (_quantize, "PqPqPPiii"),
}
