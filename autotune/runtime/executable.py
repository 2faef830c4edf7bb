"""Launch plans, loaded on a GPU and ready to be enqueued."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from autotune.compiler import Program
from autotune.driver.arguments import Packed, Values, packed, resolved
from autotune.families.plan import Launch, LaunchPlan, TensorMap
from autotune.runtime.driver import Driver, configuration

Enqueue = Callable[[int], None]
"""Puts something on the stream of that handle."""


class Direct(NamedTuple):
    """A launch that needs nothing but a stream: a configuration, in which that is put, a kernel and
    the address of its arguments' addresses, and what lies there."""

    configuration: ctypes.Array[ctypes.c_char]
    kernel: int | None
    parameters: int | None
    arguments: Packed | None


class Placed(NamedTuple):
    """A product of operands at their places on a device: what enqueues it, and, if it is one launch
    without scratch memory, that."""

    ordinal: int
    enqueue: Enqueue
    direct: Direct | None


_SUPPLIED = (
    *("a", "b", "c", "bias", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c"),
    *("alpha", "beta"),
)
_STREAM_PER_THREAD = 2


class Gpu:
    """One GPU: its kernels, its scratch memory, and the lock of whoever uses that.

    Scratch memory, a workspace and counters, is kept for each stream, where one product ends before
    the next begins, and apart for each captured graph, which may later run beside its stream. It
    grows in powers of two and is never freed: work that is queued or captured may still use it, and
    all that was outgrown is together smaller than what replaced it. Counters are zeroed when they
    are allocated; each product leaves them zero.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.ordinal = ordinal
        self.device = driver.probe(ordinal)
        self.lock = threading.Lock()
        self._kernels: dict[str, int] = {}
        self._workspaces: dict[tuple[int, ...], tuple[int, int]] = {}
        self._counters: dict[tuple[int, ...], tuple[int, int]] = {}

    def kernel(self, program: Program) -> int:
        """The handle of the program's kernel, loaded once; it may use all the shared memory there
        is.

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
        """The addresses of at least `size` bytes of workspace and of `words` counters for the work
        now queued on a stream; 0 for what none is asked of.

        Called with the lock held and the context current.
        """
        thread = threading.get_ident() if stream == _STREAM_PER_THREAD else 0
        place = (context, stream, thread, self.driver.capture(stream))
        workspace, held = self._workspaces.get(place, (0, 0))
        if held < size:
            held = _power_of_two(size)
            workspace = self.driver.allocate(held)
            self._workspaces[place] = workspace, held
        counters, zeros = self._counters.get(place, (0, 0))
        if zeros < words:
            zeros = _power_of_two(words)
            counters = self.driver.allocate(4 * zeros)
            self.driver.clear(counters, zeros, stream)
            self._counters[place] = counters, zeros
        return workspace, counters


class Executable:
    """A plan whose kernels are loaded on a GPU. May be used by several threads."""

    def __init__(self, gpu: Gpu, plan: LaunchPlan, programs: Sequence[Program]) -> None:
        self.plan = plan
        self._gpu = gpu
        self._kernels = tuple(
            _Kernel(gpu.driver, gpu.kernel(program), launch)
            for program, launch in zip(programs, plan.launches, strict=True)
        )

    def bound(
        self,
        addresses: tuple[int, int, int, int],
        leading: tuple[int, int, int],
        strides: tuple[int, int, int],
        alpha: float,
        beta: float,
    ) -> Placed:
        """The plan for operands at their places; what enqueues it neither waits nor, once the
        stream is known, allocates, and may be used by several threads.

        Args:
            addresses: of A, B, C and the bias; 0 for no bias.
            leading: dimensions of A, B and C, in elements.
            strides: from one A, B and C of a batch to the next, in elements.
            alpha: factor of A B.
            beta: factor of C, which is not read if it is 0.

        Raises:
            RunnerError: for operands that the plan's bulk copies cannot read; and, from what is
                returned, if the driver refuses the launch.
        """
        driver, ordinal = self._gpu.driver, self._gpu.ordinal
        if driver.context_on(ordinal) is None:  # tensor maps are encoded for the current one
            with driver.entered(ordinal):
                return self.bound(addresses, leading, strides, alpha, beta)
        supplied = (*addresses, *leading, *strides, alpha, beta)
        # Launches may name scratch memory that the plan has none of.
        values = dict(zip(_SUPPLIED, supplied, strict=True), workspace=0, counters=0)
        if self.plan.workspace or self.plan.counters:
            return Placed(ordinal, self._in_scratch(values), None)
        bound = [kernel.bound(values) for kernel in self._kernels]
        starts = [start for start, _ in bound]
        if len(bound) > 1:
            return Placed(ordinal, self._at_home(partial(_each, starts)), None)
        return Placed(ordinal, self._at_home(starts[0]), bound[0][1])

    def _at_home(self, start: Enqueue) -> Enqueue:
        """`start`, with a context of the GPU current."""
        # Closures, since they are the innermost steps of every product: their variables are read
        # faster than attributes.
        driver, ordinal = self._gpu.driver, self._gpu.ordinal
        current, homes = driver.context, driver.homes

        def enqueue(stream: int) -> None:
            _, context = current(0)
            if homes.get(context) == ordinal or driver.context_on(ordinal) is not None:
                start(stream)
            else:
                with driver.entered(ordinal):
                    start(stream)

        return enqueue

    def _in_scratch(self, values: Values) -> Enqueue:
        """All launches in scratch memory of the stream, with their arguments for each such place.

        The launches of two products that use the same must not mix.
        """
        gpu, plan = self._gpu, self.plan
        known: dict[tuple[int, int], list[Enqueue]] = {}

        def start(stream: int) -> None:
            with gpu.lock:
                context = gpu.driver.context_on(gpu.ordinal) or 0
                place = gpu.scratch(context, stream, plan.workspace, plan.counters)
                starts = known.get(place)
                if starts is None:
                    workspace, counters = place
                    given = {**values, "workspace": workspace, "counters": counters}
                    starts = known[place] = [kernel.bound(given)[0] for kernel in self._kernels]
                _each(starts, stream)

        return self._at_home(start)


class _Kernel:
    """One launch of a plan, loaded."""

    def __init__(self, driver: Driver, handle: int, launch: Launch) -> None:
        self._driver, self._handle, self._launch = driver, handle, launch
        self._types = [argument.type for argument in launch.arguments]
        self._configurations: dict[int, ctypes.Array[ctypes.c_char]] = {}

    def bound(self, values: Values) -> tuple[Enqueue, Direct]:
        """What puts the launch with these values on a stream, and the launch."""
        arguments = resolved(self._launch.arguments, values, self._encoded)
        given = packed(self._types, arguments)
        handle, at, driver = self._handle, given.address, self._driver
        launch, configurations, configured = driver.launch, self._configurations, self._configured

        def start(stream: int, _: Packed = given) -> None:  # held while its address is used
            status = launch(configurations.get(stream) or configured(stream), handle, at, None)
            if status:
                raise driver.failed("cuLaunchKernelEx", status)

        shape = self._launch.grid, self._launch.block, self._launch.shared
        return start, Direct(configuration(*shape, 0), handle, at, given)

    def _configured(self, stream: int) -> ctypes.Array[ctypes.c_char]:
        one = self._launch
        found = configuration(one.grid, one.block, one.shared, stream)
        return self._configurations.setdefault(stream, found)

    def _encoded(self, one: TensorMap, values: Values) -> bytes:
        return self._driver.encode(one, values)


def _each(starts: Sequence[Enqueue], stream: int) -> None:
    for start in starts:
        start(stream)


def _power_of_two(size: int) -> int:
    """The smallest that is at least `size`."""
    return 1 << (size - 1).bit_length()
