"""Launch plans, loaded on a GPU and ready to be enqueued."""

from __future__ import annotations

import ctypes
import struct
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from operator import itemgetter
from typing import Any

from autotune import tensor_maps
from autotune.compiler import Program
from autotune.plan import Launch, LaunchPlan, TensorMap
from autotune.runtime.driver import Driver

Values = tuple[float, ...]

_FORMATS = {
    "tensor_map": f"{tensor_maps.BYTES}s",
    **{"pointer": "P", "i32": "i", "i64": "q", "f32": "f"},
}
_SUPPLIED = (
    *("a", "b", "c", "bias", "lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c"),
    *("alpha", "beta", "workspace", "counters"),
)
_STREAM_PER_THREAD = 2
# Places of operands for which a launch keeps its tensor maps.
_KEPT_PLACES = 64


class Gpu:
    """One GPU: its kernels, its scratch memory, and the lock that a launch holds.

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
        self._kernels: dict[str, Any] = {}
        self._workspaces: dict[tuple[int, ...], tuple[int, int]] = {}
        self._counters: dict[tuple[int, ...], tuple[int, int]] = {}

    def kernel(self, program: Program) -> Any:
        """The program's kernel, loaded once; it may use all the shared memory there is.

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
    """A plan whose kernels are loaded on a GPU. May be run by several threads."""

    def __init__(self, gpu: Gpu, plan: LaunchPlan, programs: Sequence[Program]) -> None:
        self.plan = plan
        self._gpu = gpu
        self._launches = tuple(
            _packed(gpu.driver, gpu.kernel(program), launch)
            for program, launch in zip(programs, plan.launches, strict=True)
        )

    def run(
        self,
        stream: int,
        addresses: tuple[int, int, int, int],
        leading: tuple[int, int, int],
        strides: tuple[int, int, int],
        alpha: float,
        beta: float,
    ) -> None:
        """Enqueues the plan on a stream; neither waits nor, once the stream is known, allocates.

        Args:
            stream: the handle of the stream.
            addresses: of A, B, C and the bias; 0 for no bias.
            leading: dimensions of A, B and C, in elements.
            strides: from one A, B and C of a batch to the next, in elements.
            alpha: factor of A B.
            beta: factor of C, which is not read if it is 0.

        Raises:
            RunnerError: if the driver refuses the launch.
        """
        gpu, plan = self._gpu, self.plan
        context = gpu.driver.context_on(gpu.ordinal)
        if context is None:
            with gpu.driver.entered(gpu.ordinal):
                self.run(stream, addresses, leading, strides, alpha, beta)
            return
        # One lock for the whole GPU: the argument buffers are shared, and the launches of two
        # products that use the same scratch memory must not mix. The driver has such a lock too.
        with gpu.lock:
            scratch = 0, 0
            if plan.workspace or plan.counters:
                scratch = gpu.scratch(context, stream, plan.workspace, plan.counters)
            values = (*addresses, *leading, *strides, alpha, beta, *scratch)
            for launch in self._launches:
                launch(stream, values)


def _power_of_two(size: int) -> int:
    """The smallest that is at least `size`."""
    return 1 << (size - 1).bit_length()


def _packed(driver: Driver, kernel: Any, launch: Launch) -> Callable[[int, Values], None]:
    """A launch with a buffer for its arguments, in which a call fills in what is supplied.

    A closure, since it is the innermost step of every product: its variables are read faster
    than attributes. Arguments lie in the buffer as in a C struct, tensor maps in front.
    """
    formats = [_FORMATS[argument.type] for argument in launch.arguments]
    ends = [struct.calcsize("@" + "".join(formats[: n + 1])) for n in range(len(formats))]
    buffer = ctypes.create_string_buffer(ends[-1] + tensor_maps.ALIGNMENT)
    first = -ctypes.addressof(buffer) % tensor_maps.ALIGNMENT
    base = ctypes.addressof(buffer) + first
    starts = (base + end - struct.calcsize(one) for end, one in zip(ends, formats, strict=True))
    pointers = (ctypes.c_void_p * len(formats))(*starts)
    given = [argument.value for argument in launch.arguments]
    maps = [value for value in given if isinstance(value, TensorMap)]
    values = [value for value in given if not isinstance(value, TensorMap)]
    constants = tuple(value for value in values if not isinstance(value, str))
    pick = _picker(values)
    pack = struct.Struct("@" + "".join(formats)).pack_into
    enqueue = partial(driver.launcher(), kernel, *launch.grid, *launch.block, launch.shared)

    def call(stream: int, supplied: Values) -> None:
        pack(buffer, first, *pick(supplied + constants))
        (status,) = enqueue(stream, pointers, 0)
        if status:
            raise driver.failed("cuLaunchKernel", status)

    def call_with_maps(stream: int, supplied: Values) -> None:
        pack(buffer, first, *encoded(supplied), *pick(supplied + constants))
        (status,) = enqueue(stream, pointers, 0)
        if status:
            raise driver.failed("cuLaunchKernel", status)

    if not maps:
        return call
    encoded = _encoded(driver, maps)
    return call_with_maps


def _encoded(driver: Driver, maps: Sequence[TensorMap]) -> Callable[[Values], tuple[bytes, ...]]:
    """Encodes a launch's tensor maps for what is supplied; remembers the latest places."""
    encode = driver.encoder()
    words = {word for one in maps for word in (one.base, one.pitch, one.stride)}
    names = [name for name in _SUPPLIED if name in words]
    # Of one place itemgetter would give no tuple.
    place = itemgetter(*(_SUPPLIED.index(name) for name in (*names, names[0])))

    @lru_cache(_KEPT_PLACES)
    def at(where: Values) -> tuple[bytes, ...]:
        known = dict(zip(names, where, strict=False))
        return tuple(encode(one, known) for one in maps)

    def encoded(supplied: Values) -> tuple[bytes, ...]:
        return at(place(supplied))

    return encoded


def _picker(values: Sequence[str | float]) -> Callable[[Values], Values]:
    """Puts what is supplied at a launch and then the constants into the arguments' order."""
    constants = iter(range(len(_SUPPLIED), len(_SUPPLIED) + len(values)))
    return itemgetter(
        *(_SUPPLIED.index(v) if isinstance(v, str) else next(constants) for v in values)
    )
