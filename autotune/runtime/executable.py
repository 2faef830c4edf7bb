"""Launch plans with their kernels loaded on a GPU, and gemms bound to addresses."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from autotune.cuda.launches import (
    Dependence,
    PackedArguments,
    Resolver,
    Values,
    dependent_launches,
    pack_arguments,
)
from autotune.cuda.program import Program
from autotune.errors import ArrayError
from autotune.families.plan import Launch, LaunchPlan, TensorMap
from autotune.problem.call import OPERANDS, Call
from autotune.runtime.driver import Driver, configuration

Enqueue = Callable[[int], None]
"""Enqueues something on the stream of that handle."""


class SingleLaunch(NamedTuple):
    """A launch that is complete but for the stream, which goes into its configuration.

    Attributes:
        configuration: grid, block, shared memory and stream.
        kernel: the handle of the kernel.
        parameters: the address of its array of argument pointers.
        arguments: the memory behind `parameters`, kept alive.
    """

    configuration: ctypes.Array[ctypes.c_char]
    kernel: int | None
    parameters: int | None
    arguments: PackedArguments | None


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
        self._workspaces: dict[tuple[int, ...], tuple[int, int]] = {}
        self._counters: dict[tuple[int, ...], tuple[int, int]] = {}
        self._quantized: dict[tuple[int, ...], tuple[int, int]] = {}

    def kernel(self, program: Program) -> int:
        """The handle of the program's kernel, loaded once. It may use all the shared memory of a
        block.

        Raises:
            RunnerError: if the GPU cannot run it.
        """
        kernel = self._kernels.get(program.key)
        if kernel is None:
            dynamic = self.device.shared_per_block_optin - program.shared
            load = partial(self.driver.load_kernel, program.cubin, program.symbol)
            if self.driver.context_on(self.ordinal) is not None:
                kernel = load(self.ordinal, dynamic)
            else:
                with self.driver.entered(self.ordinal):
                    kernel = load(self.ordinal, dynamic)
            self._kernels[program.key] = kernel
        return kernel

    def scratch(self, context: int, stream: int, size: int, words: int) -> tuple[int, int]:
        """The addresses of a workspace of at least `size` bytes and of at least `words` counters,
        for work enqueued on a stream now; 0 for a size of 0.

        The caller holds the lock, and the context is current.
        """
        user = self._user(context, stream)
        workspace = self._grown(self._workspaces, user, size)
        counters, zeros = self._counters.get(user, (0, 0))
        if zeros < words:
            zeros = _power_of_two(words)
            counters = self.driver.allocate(4 * zeros)
            self.driver.clear(counters, zeros, stream)
            self._counters[user] = counters, zeros
        return workspace, counters

    def quantized(self, context: int, stream: int, size: int) -> int:
        """The address of at least `size` bytes for an operand that is quantised on a stream now,
        and for its scales.

        The caller holds the lock `quantizing` until the operand's product is enqueued too, and the
        context is current.
        """
        return self._grown(self._quantized, self._user(context, stream), size)

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

    def _user(self, context: int, stream: int) -> tuple[int, ...]:
        """The stream or captured graph that scratch memory belongs to."""
        thread = threading.get_ident() if stream == _STREAM_PER_THREAD else 0
        return context, stream, thread, self.driver.capture(stream)

    def _grown(
        self, pieces: dict[tuple[int, ...], tuple[int, int]], user: tuple[int, ...], size: int
    ) -> int:
        """The address of a user's piece of memory, of at least `size` bytes."""
        address, capacity = pieces.get(user, (0, 0))
        if capacity < size:
            capacity = _power_of_two(size)
            address = self.driver.allocate(capacity)
            pieces[user] = address, capacity
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
        driver, ordinal = self._gpu.driver, self._gpu.ordinal
        if driver.context_on(ordinal) is None:  # tensor maps need a current context
            with driver.entered(ordinal):
                return self.bind(call, dependent)
        dependents = dependent_launches(self.plan, self._gpu.device, dependent > Dependence.NONE)
        # Scratch memory stays 0 where the plan needs none.
        values = call.words()
        # A launch that copies B comes between what wrote A and the product.
        values["b_ready"] = dependent == Dependence.OF_A and self.plan.product == 0
        if self.plan.workspace or self.plan.counters:
            return BoundGemm(ordinal, self._in_scratch(values, dependents), None)
        bound = self._bound(values, dependents)
        starts = [start for start, _ in bound]
        if len(bound) > 1:
            return BoundGemm(ordinal, self._gpu.in_context(partial(_start_all, starts)), None)
        return BoundGemm(ordinal, self._gpu.in_context(starts[0]), bound[0][1])

    def bind_words(self, values: Values) -> Enqueue:
        """The plan, which needs no scratch memory, bound to the values of its words."""
        bound = self._bound(values, dependent_launches(self.plan, self._gpu.device))
        return self._gpu.in_context(partial(_start_all, [start for start, _ in bound]))

    def _bound(
        self, values: Values, dependents: Sequence[bool]
    ) -> list[tuple[Enqueue, SingleLaunch]]:
        return [
            launch.bind(values, dependent)
            for launch, dependent in zip(self._launches, dependents, strict=True)
        ]

    def _in_scratch(self, values: Values, dependents: Sequence[bool]) -> Enqueue:
        """All launches, bound once for each piece of scratch memory that a stream gets.

        The lock keeps the launches of two gemms that share scratch memory from mixing.
        """
        gpu, plan = self._gpu, self.plan
        bound: dict[tuple[int, int], list[Enqueue]] = {}

        def start(stream: int) -> None:
            with gpu.lock:
                context = gpu.driver.context_on(gpu.ordinal) or 0
                scratch = gpu.scratch(context, stream, plan.workspace, plan.counters)
                starts = bound.get(scratch)
                if starts is None:
                    workspace, counters = scratch
                    complete = {**values, "workspace": workspace, "counters": counters}
                    starts = [start for start, _ in self._bound(complete, dependents)]
                    bound[scratch] = starts
                _start_all(starts, stream)

        return self._gpu.in_context(start)


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
        configured = configuration(launch.grid, launch.block, launch.shared, stream, dependent)
        return self._configurations[dependent].setdefault(stream, configured)

    def _encode(self, tensor_map: TensorMap, values: Values) -> bytes:
        return self._driver.encode(tensor_map, values)


def _start_all(starts: Sequence[Enqueue], stream: int) -> None:
    for start in starts:
        start(stream)


def _power_of_two(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()
