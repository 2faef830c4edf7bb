"""The launcher: the CUDA driver, GPUs with their kernels, and launch plans bound to operands."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, NamedTuple

from autotune.cuda import bindings
from autotune.cuda.bindings import entry_point
from autotune.cuda.cublaslt import ALIGNMENT, Arguments, BoundProduct, CublasLt
from autotune.cuda.launches import (
    Dependence,
    PackedArguments,
    Resolver,
    TensorMapEncoder,
    Values,
    dependent_launches,
    pack_arguments,
)
from autotune.cuda.program import Program
from autotune.device import Device
from autotune.errors import ArrayError, MissingError, RunnerError
from autotune.families.plan import Launch, LaunchPlan, LibraryCall, TensorMap
from autotune.problem.call import OPERANDS, Call

TYPE_CHECKING = False
if TYPE_CHECKING:
    from numpy.typing import NDArray

_LAUNCH = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
# CUlaunchConfig of cuda.h: grid, block, shared memory, stream, attributes and their number.
_CONFIGURATION = struct.Struct("@7I4xPPI4x")

# CUlaunchAttribute of cuda.h, which has 64 bytes for a value. Configurations hold the address of
# CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 1 or CU_LAUNCH_ATTRIBUTE_COOPERATIVE = 1.
_DEPENDENT = ctypes.create_string_buffer(struct.pack("@i4xi60x", 6, 1))
_COOPERATIVE = ctypes.create_string_buffer(struct.pack("@i4xi60x", 2, 1))


def configuration(
    grid: Sequence[int],
    block: Sequence[int],
    shared: int,
    stream: int,
    dependent: bool = False,
    cooperative: bool = False,
) -> ctypes.Array[ctypes.c_char]:
    """The launch configuration that `Driver.launch` takes. Nothing changes it later, so threads may
    share it. A `dependent` kernel may start before its predecessor on the stream has ended. All
    blocks of a `cooperative` launch, which is not dependent, are resident at once."""
    attribute = _DEPENDENT if dependent else _COOPERATIVE
    attributes = (ctypes.addressof(attribute), 1) if dependent or cooperative else (0, 0)
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
        """Makes the device's primary context current within a `with` block, unless the current
        context is on the device already."""
        if self.context_on(ordinal) is not None:
            yield
            return
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

    def load_kernel(
        self,
        cubin: bytes,
        symbol: str,
        ordinal: int,
        dynamic_shared: int,
        contents: Iterable[tuple[str, NDArray[Any]]] = (),
    ) -> int:
        """The handle of a kernel in a cubin, which may use that many bytes of dynamic shared memory
        a block. The `contents` of variables are uploaded, by their symbols.

        Raises:
            RunnerError: if the device cannot run it.
        """
        cuda = self._cuda
        with self.relaxed():
            library = self._call(cuda.cuLibraryLoadData, cubin, [], [], 0, [], [], 0)
            kernel = self._call(cuda.cuLibraryGetKernel, library, symbol.encode())
            device = self._call(cuda.cuDeviceGet, ordinal)
            limit = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call(cuda.cuKernelSetAttribute, limit, dynamic_shared, kernel, device)
            # Otherwise the first launch would load it, and that may be inside a graph capture.
            self._call(cuda.cuKernelGetFunction, kernel)
            for name, array in contents:
                address, _ = self._call(cuda.cuLibraryGetGlobal, library, name.encode())
                self.upload(int(address), array)
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
        with self.relaxed():
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
    def relaxed(self) -> Iterator[None]:
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


Enqueue = Callable[[int], None]
"""Enqueues something on the stream of that handle."""


class SingleLaunch(NamedTuple):
    """A launch that is complete but for the stream, which goes into its configuration.

    Attributes:
        configuration: grid, block, shared memory and stream; without blocks it is a call of
            `cublasLtMatmul`.
        kernel: the handle of the kernel, or the address of that function.
        parameters: the address of its array of argument pointers, or of the function's arguments.
        arguments: the memory behind `parameters`, kept alive.
    """

    configuration: ctypes.Array[ctypes.c_char]
    kernel: int | None
    parameters: int | None
    arguments: object


class BoundGemm(NamedTuple):
    """A gemm bound to the addresses of its operands on a device.

    Attributes:
        ordinal: the device.
        enqueue: enqueues all its launches.
        single: its launch, if it is a single one without scratch memory.
    """

    ordinal: int
    enqueue: Enqueue
    single: SingleLaunch | None


_STREAM_PER_THREAD = 2
_Configurations = dict[int, ctypes.Array[ctypes.c_char]]
"""Launch configurations by stream."""


Bind = Callable[[Values], list[tuple[Enqueue, SingleLaunch]]]
"""Binds the launches of a plan to the values of its words, those of scratch memory included."""


class _User(NamedTuple):
    """The stream or captured graph that scratch memory belongs to."""

    stream: int
    context: int
    thread: int
    capture: int


class Gpu:
    """One GPU: its loaded kernels, its scratch memory and the lock that guards this memory.

    Scratch memory is a workspace and counters. Each stream has its own, as one gemm on a stream
    ends before the next begins; each captured graph has its own too, as it may later run beside
    its stream. Scratch memory grows in powers of two and is never freed: queued or captured work
    may still use it, and all outgrown blocks together are smaller than the block that replaced
    them. Counters are zeroed when they are allocated, and each gemm leaves them zero.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.device = driver.probe(ordinal)
        if not self.device.knows_clusters:
            with driver.entered(ordinal):  # as the first kernel would
                self.device = driver.probe(ordinal)
        self.lock = threading.Lock()
        self.quantizing = threading.Lock()  # taken before `lock`
        self._kernels: dict[str, int] = {}
        self._pieces: dict[tuple[str, _User], tuple[int, int]] = {}

    @cached_property
    def cublaslt(self) -> CublasLt:
        """cuBLASLt with a handle on the GPU; it is opened during a graph capture, too.

        Raises:
            MissingError: if it is not installed.
            RunnerError: if it refuses.
        """
        with self.driver.entered(self.ordinal), self.driver.relaxed():
            return CublasLt.load()

    def kernel(self, program: Program, contents: Iterable[tuple[str, NDArray[Any]]] = ()) -> int:
        """The handle of the program's kernel, loaded once, with the `contents` of its variables. It
        may use all the shared memory of a block.

        Raises:
            RunnerError: if the GPU cannot run it.
        """
        kernel = self._kernels.get(program.key)
        if kernel is None:
            dynamic = self.device.shared_per_block_optin - program.shared
            place = self.ordinal, dynamic
            with self.driver.entered(self.ordinal):
                kernel = self.driver.load_kernel(program.cubin, program.symbol, *place, contents)
            self._kernels[program.key] = kernel
        return kernel

    def scratch(self, stream: int, size: int, words: int) -> tuple[int, int]:
        """The addresses of a workspace of at least `size` bytes and of at least `words` counters,
        for work enqueued on a stream now; 0 for a size of 0.

        The caller holds the lock, and a context of the GPU is current.
        """
        user = self._user(stream)
        return self._memory("workspace", user, size), self._memory("counters", user, 4 * words)

    def quantized(self, stream: int, size: int) -> int:
        """The address of at least `size` bytes for an operand that is quantised on a stream now,
        and for its scales.

        The caller holds the lock `quantizing` until the operand's product is enqueued too, and a
        context of the GPU is current.
        """
        return self._memory("quantised", self._user(stream), size)

    def in_context(self, start: Enqueue) -> Enqueue:
        """`start`, with a context of the GPU current."""
        # A closure, as every call ends here: its variables are read faster than attributes.
        driver, ordinal = self.driver, self.ordinal
        current, devices = driver.context, driver.devices

        def enqueue(stream: int) -> None:
            _, context = current(0)
            if devices.get(context) == ordinal or driver.context_on(ordinal) is not None:
                start(stream)
            else:
                with driver.entered(ordinal):
                    start(stream)

        return enqueue

    def _user(self, stream: int) -> _User:
        context = self.driver.context_on(self.ordinal) or 0
        thread = threading.get_ident() if stream == _STREAM_PER_THREAD else 0
        return _User(stream, context, thread, self.driver.capture(stream))

    def _memory(self, use: str, user: _User, size: int) -> int:
        """The address of a user's memory for a use, of at least `size` bytes."""
        address, capacity = self._pieces.get((use, user), (0, 0))
        if capacity < size:
            capacity = 1 << (size - 1).bit_length()
            address = self.driver.allocate(capacity)
            if use == "counters":
                self.driver.clear(address, capacity // 4, user.stream)
            self._pieces[use, user] = address, capacity
        return address


class Executable:
    """A launch plan whose kernels are loaded on a GPU. Safe to share between threads."""

    def __init__(self, gpu: Gpu, plan: LaunchPlan, programs: Sequence[Program]) -> None:
        self.plan = plan
        self._gpu = gpu
        self._launches = tuple(
            _LoadedLaunch(gpu.driver, gpu.kernel(program), launch)
            for program, launch in zip(programs, plan.launches, strict=True)
        )
        read = {cell.value for launch in plan.launches for cell in launch.cells}
        self._unread = [row for row in OPERANDS if row.optional and row.name not in read]

    def bind(self, call: Call, dependent: Dependence = Dependence.NONE) -> BoundGemm:
        """The plan bound to operands. Enqueueing it does not wait, and allocates at most at the
        first use of a stream; several threads may do so.

        Args:
            call: the operands and factors.
            dependent: whether the first launch is a dependent one too (`dependent_launches`), and
                what of it waits.

        Raises:
            UsageError: for `dependent` on a device below compute capability 9.0.
            ArrayError: for an operand that a call may leave out and no launch reads.
            RunnerError: for operands that the plan's tensor maps cannot describe; and, when the
                result is enqueued, if the driver refuses a launch.
        """
        for row in self._unread:
            if call.addresses.get(row.name):
                raise ArrayError(
                    f"{self.plan.config} has no {row.argument}; leave it out, or tune the problem, "
                    "which finds a kernel that has it"
                )
        dependents = dependent_launches(self.plan, self._gpu.device, dependent > Dependence.NONE)
        # Scratch memory stays 0 where the plan needs none.
        values = call.words()
        # A launch that copies B comes between what wrote A and the product.
        values["b_ready"] = dependent == Dependence.OF_A and self.plan.product == 0
        return BoundGemm(self._gpu.ordinal, *self._start(values, self._binder(dependents)))

    def bind_words(self, values: Values) -> Enqueue:
        """The plan bound to the values of its words, except for those of scratch memory."""
        dependents = dependent_launches(self.plan, self._gpu.device)
        return self._start(values, self._binder(dependents))[0]

    def _start(self, values: Values, bind: Bind) -> tuple[Enqueue, SingleLaunch | None]:
        """The function that enqueues all launches, and the launch if it is a single one."""
        if self.plan.workspace or self.plan.counters:
            return self._in_scratch(values, bind), None
        with self._gpu.driver.entered(self._gpu.ordinal):  # tensor maps need a current context
            bound = bind(values)
        start, single = bound[0] if len(bound) == 1 else (in_order(bound), None)
        return self._gpu.in_context(start), single

    def _binder(self, dependents: Sequence[bool]) -> Bind:
        return lambda values: [
            launch.bind(values, dependent)
            for launch, dependent in zip(self._launches, dependents, strict=True)
        ]

    def _in_scratch(self, values: Values, bind: Bind) -> Enqueue:
        """All launches, bound once for each piece of scratch memory that a stream gets.

        The lock keeps the launches of two gemms that share scratch memory from mixing.
        """
        gpu, plan = self._gpu, self.plan
        bound: dict[tuple[int, int], Enqueue] = {}

        def start(stream: int) -> None:
            with gpu.lock:
                scratch = gpu.scratch(stream, plan.workspace, plan.counters)
                enqueue = bound.get(scratch)
                if enqueue is None:
                    workspace, counters = scratch
                    complete = {**values, "workspace": workspace, "counters": counters}
                    complete |= {piece.word: workspace + piece.offset for piece in plan.pieces}
                    enqueue = bound[scratch] = in_order(bind(complete))
                enqueue(stream)

        return self._gpu.in_context(start)


# Without blocks it is no launch of a kernel.
_NO_LAUNCH = configuration((0, 0, 0), (0, 0, 0), 0, 0)


class LibraryExecutable(Executable):
    """A problem that an algorithm of cuBLASLt computes on a GPU. Safe to share between threads.

    Args:
        gpu: the GPU.
        plan: the plan, whose `library` is the call.
        otherwise: returns what runs calls that the algorithm does not take.
    """

    def __init__(self, gpu: Gpu, plan: LaunchPlan, otherwise: Callable[[], Executable]) -> None:
        super().__init__(gpu, plan, ())
        self._otherwise = otherwise

    def bind(self, call: Call, dependent: Dependence = Dependence.NONE) -> BoundGemm:
        """The algorithm bound to operands, as a plan with launches is.

        Dependent calls run otherwise, as the library waits for all work before it on the stream. So
        do calls with an alpha of 0, where the library may read NaN in A and B; those with an
        address that is no multiple of 16 bytes; and those whose pitches it refuses.

        Raises:
            UsageError, ArrayError, RunnerError: as `Executable.bind`.
        """
        product = None if dependent else self._product(call)
        if product is None:
            return self._otherwise().bind(call, dependent)
        bound = self._start(call.words(), partial(self._calls, product))
        return BoundGemm(self._gpu.ordinal, *bound)

    def _product(self, call: Call) -> BoundProduct | None:
        """The algorithm for the pitches and strides of a call; None if it does not take the call.

        Each call has its own, as the library notes the addresses of a bias and of scales in it.
        """
        library = self.plan.library
        if call.alpha == 0 or any(address % ALIGNMENT for address in call.addresses.values()):
            return None
        assert isinstance(library, LibraryCall)
        try:
            product = self._gpu.cublaslt.bind(library, call.words())
        except (MissingError, RunnerError):
            return None
        return product if product.workspace <= self.plan.workspace else None

    def _calls(self, product: BoundProduct, values: Values) -> list[tuple[Enqueue, SingleLaunch]]:
        """The call of the library, with the address of its workspace among the values."""
        matmul, plan = self._gpu.cublaslt.matmul, self.plan
        arguments = product.arguments(values, plan.workspace)
        words = arguments.before_stream

        # The default argument keeps what the words point to alive.
        def start(stream: int, _: Arguments = arguments) -> None:
            if status := matmul(*words, stream):
                raise RunnerError(f"cublasLtMatmul returned status {status} for {plan.config}")

        function = ctypes.cast(matmul, ctypes.c_void_p).value
        single = SingleLaunch(_NO_LAUNCH, function, ctypes.addressof(arguments.words), arguments)
        return [(start, single)]


class _LoadedLaunch:
    """One launch of a plan, with its kernel loaded."""

    def __init__(self, driver: Driver, handle: int, launch: Launch) -> None:
        self._driver, self._handle, self._launch = driver, handle, launch
        self._types, self._resolve = launch.parameters, Resolver(launch.arguments)
        self._configurations: tuple[_Configurations, _Configurations] = ({}, {})

    def bind(self, values: Values, dependent: bool) -> tuple[Enqueue, SingleLaunch]:
        """The function that enqueues the launch with these values, and the launch itself."""
        packed = pack_arguments(self._types, self._resolve(values, self._encode))
        handle, address, driver = self._handle, packed.address, self._driver
        configurations = self._configurations[dependent]
        launch, configure = driver.launch, partial(self._configure, dependent)

        # The default argument keeps the memory behind `address` alive.
        def start(stream: int, _: PackedArguments = packed) -> None:
            status = launch(configurations.get(stream) or configure(stream), handle, address, None)
            if status:
                raise driver.failed("cuLaunchKernelEx", status)

        shape = self._launch.grid, self._launch.block, self._launch.shared
        return start, SingleLaunch(configuration(*shape, 0, dependent), handle, address, packed)

    def _configure(self, dependent: bool, stream: int) -> ctypes.Array[ctypes.c_char]:
        launch = self._launch
        shape = launch.grid, launch.block, launch.shared
        configured = configuration(*shape, stream, dependent, launch.cooperative)
        return self._configurations[dependent].setdefault(stream, configured)

    def _encode(self, tensor_map: TensorMap, values: Values) -> bytes:
        return self._driver.encode(tensor_map, values)


def in_order(launches: Iterable[tuple[Enqueue, object]]) -> Enqueue:
    """The function that enqueues launches one after another."""
    starts = [start for start, _ in launches]

    def enqueue(stream: int) -> None:
        for start in starts:
            start(stream)

    return enqueue
