"""Records the launches of the Python runtime in the form of the fake driver in C."""

from __future__ import annotations

import ctypes
import struct
from functools import partial
from typing import Any

from autotune.cuda.launches import layout
from autotune.device import Device
from autotune.export import ExportedLibrary
from autotune.export.library import General
from autotune.families.config import Config
from autotune.families.plan import Alignment, LaunchPlan
from autotune.lookup.answer import Answer
from autotune.measure.objective import Objective
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.launcher import Driver
from autotune.runtime.state import Runtime
from support import exported_library
from support.exported_library import (
    BIAS,
    RESIDUAL,
    SCALE_A,
    SCALE_B,
    SHARED,
    WORKSPACE,
    Call,
    Launch,
    counter_bytes,
)
from support.fake_driver import FakeCuda
from support.general_kernels import serves

SCRATCH = 1 << 56


class Recorder(FakeCuda):
    """A driver that records the bytes of launch arguments.

    It encodes tensor maps as the fake driver in C does.
    """

    def __init__(self, library: ExportedLibrary) -> None:
        super().__init__()
        self.raw: list[Launch] = []
        self._sizes = {
            program.symbol: [layout((type,)).size for type in launch.parameters]
            for launch, program in library.launches
        }
        self.counters: set[int] = set()
        self._blocks = 0
        integer, pointer = ctypes.c_int, ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(
            integer, pointer, integer, ctypes.c_uint32, *[pointer] * 5, *[integer] * 4
        )
        self._encoder = kind(_encode)

    def launch(self, kernel: int, parameters: int, shape: Any) -> None:
        symbol = self._kernels[kernel - 1]
        sizes = self._sizes[symbol]
        places = (ctypes.c_void_p * len(sizes)).from_address(parameters)
        arguments = [ctypes.string_at(at, size) for at, size in zip(places, sizes, strict=True)]
        grid, block, shared, stream, dependent = shape
        values = tuple(arguments)
        self.raw.append(Launch(symbol, grid, block, shared, stream, dependent, values))

    def cuMemAlloc(self, size: int) -> Any:
        del size
        self._blocks += 1
        return 0, SCRATCH + (self._blocks << 48)

    def cuMemsetD32Async(self, address: int, value: int, words: int, stream: int) -> Any:
        del value, words, stream
        self.counters.add(address >> 48)
        return (0,)

    def cuGetProcAddress(self, name: bytes, version: int, flags: int) -> Any:
        if name != b"cuTensorMapEncodeTiled":
            return super().cuGetProcAddress(name, version, flags)
        return 0, ctypes.cast(self._encoder, ctypes.c_void_p).value, 0

    def placed(self, argument: bytes, counted: int) -> bytes:
        """An argument's value if scratch memory is in the caller's workspace."""
        if len(argument) < 8:
            return argument
        words = list(struct.unpack(f"<{len(argument) // 8}Q", argument))
        for place, word in enumerate(words):
            # A tensor map has one address.
            if SCRATCH <= word < 2 * SCRATCH and (len(argument) != 128 or place == 2):
                start = 0 if word >> 48 in self.counters else counted
                words[place] = WORKSPACE + start + word % (1 << 48)
        return struct.pack(f"<{len(words)}Q", *words)


def _encode(
    to: int, kind: int, rank: int, address: int, extents: int, strides: int, box: int, steps: int,
    interleave: int, swizzle: int, promotion: int, fill: int,
) -> int:  # fmt: skip
    wide, narrow = ctypes.c_uint64, ctypes.c_uint32
    words = [kind | swizzle << 8 | promotion << 16 | interleave << 24 | fill << 32, 2**64 - 1]
    words += [address, *(wide * 3).from_address(extents), *(wide * 2).from_address(strides)]
    words += [*(narrow * 3).from_address(box), *(narrow * 3).from_address(steps)]
    ctypes.memmove(to, struct.pack("<16Q", *words, *[0] * (16 - len(words))), 128)
    assert rank == 3
    return 0


def launched_by_python(
    library: ExportedLibrary, call: Call, config: Config, plan: LaunchPlan
) -> list[Any]:
    """The launches of the runtime for a call with a plan."""
    cuda = Recorder(library)
    cuda.make_context(0)

    def answer(problem: Problem, device: Device, objective: Objective) -> Answer:
        del objective
        return exported_library.answer_of(problem, device, config)

    def planned(config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        del config, problem, alignment
        return plan

    runtime = Runtime(Driver(cuda), answer, planned, exported_library.fake_build)
    names = ("lda", "ldb", "ldc", "stride_a", "stride_b", "stride_c")
    steps = dict(zip(names, (*call.leading, *call.strides), strict=True))
    explicit: dict[str, Any] = {name: max(0, step) for name, step in steps.items() if step != 0}
    bias = BIAS if call.problem.has_bias else 0
    launch = partial(Kernel(runtime, call.problem, 0).launch, alpha=call.alpha, beta=call.beta)
    explicit["dependent"] = call.dependent
    if call.problem.has_residual:
        of_residual = zip(("ldr", "stride_r"), call.residual_steps, strict=True)
        explicit |= {name: max(0, step) for name, step in of_residual if step != 0}
        explicit["residual"] = RESIDUAL
    if call.problem.scale != "none":
        explicit |= {"scale_a": SCALE_A, "scale_b": SCALE_B}
    explicit |= dict(zip(("scale_result", "amax"), call.of_result, strict=True))
    launch(call.a, call.b, call.c, call.stream, bias=bias, **explicit)
    counted = counter_bytes(library)
    return [
        raw._replace(arguments=tuple(cuda.placed(value, counted) for value in raw.arguments))
        for raw in cuda.raw
    ]


def general_of(library: ExportedLibrary, call: Call) -> General:
    """The first general kernel that the operands of a call allow."""
    problem = call.problem
    dense = zip(call.leading, problem.leading_dimensions, strict=True)
    leading = tuple(passed or default for passed, default in dense)
    full = (rows * ld for rows, ld in zip(problem.stored_rows, leading, strict=True))
    steps = tuple(
        0 if stride == SHARED or problem.batch == 1 else stride or dense_stride
        for stride, dense_stride in zip(call.strides, full, strict=True)
    )
    sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
    allowed = Alignment.of(leading, (call.a, call.b, call.c), sizes, steps)  # type: ignore[arg-type]
    return next(
        fallback.general
        for fallback in library.fallbacks
        if serves(fallback.general, problem)
        and all(
            have % want == 0
            for have, want in zip(
                (allowed.a, allowed.b, allowed.c),
                (
                    fallback.general.alignment.a,
                    fallback.general.alignment.b,
                    fallback.general.alignment.c,
                ),
                strict=True,
            )
        )
    )
