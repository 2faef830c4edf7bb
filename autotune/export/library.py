"""The contents of an export: gemms with their plans and programs, and general kernels.

A general kernel serves shapes that were not exported: its grid follows from the sizes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from autotune import settings
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import AutotuneError, FrozenError, NotFoundError, UsageError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.mma.parameters import COPY_BYTES
from autotune.families.plan import Alignment, Launch, LaunchPlan, LibraryCall, Template
from autotune.families.shared.limits import has_cp_async
from autotune.lookup.answer import Answer, unrecorded, without_library
from autotune.measure.objective import Objective
from autotune.model.space import unserved
from autotune.problem import GATE_SPAN, Problem
from autotune.problem.precision import F32
from autotune.records import Record

_SIMT = (
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy={copy},stages={stages},"
    "fragments=2,min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,"
    "fence=0,order=rows"
)

_MMA = (
    "mma:compute={compute},swap=0,bm=64,bn=64,bk=32,wm=32,wn=32,slices=1,copy={copy},pack=none,"
    "stages={stages},split_k=1,promote=0,min_blocks=1,store=direct,group=1"
)

_SAMPLE = 1112, 1136, 1144
"""Sizes that are multiples of whole vectors but of no tile: a plan for them fits every shape."""


@dataclass(frozen=True)
class General:
    """A launch that serves every m, n, k and batch of one kind of problem.

    Attributes:
        problem: the compute, layout, epilogue and output; its sizes are placeholders.
        config: the configuration.
        alignment: the least alignment of the operands and of their row lengths.
        tile: rows and columns of C that a block computes; the grid has a block for each tile along
            x and for each matrix of the batch along z.
        launch: the launch, with the words `m`, `n` and `k` for the sizes and a placeholder for the
            grid.
    """

    problem: Problem
    config: Config
    alignment: Alignment
    tile: tuple[int, int]
    launch: Launch


def generals(problem: Problem, device: Device) -> tuple[General, ...]:
    """The general kernels for the problem's kind on a device, that for whole vectors first.

    Tensor cores serve `f16`, `bf16` and, where the device has them for it, `tf32`; IEEE products
    serve the other precisions of 16 and 32 bits. Those of 8 bits have none.
    """
    if problem.precision.eight_bit:
        return ()
    m, n, k = _SAMPLE
    sample = replace(problem, m=m, n=n, k=k, batch=1)
    return tuple(
        _general(sample, _config(problem, device, alignment), alignment)
        for alignment in (Alignment.dense(sample), Alignment(1, 1, 1))
    )


def _general(sample: Problem, config: Config, alignment: Alignment) -> General:
    (launch,) = registry.plan(config, sample, alignment).launches
    words: dict[object, str] = {sample.m: "m", sample.n: "n", sample.k: "k"}
    arguments = tuple(
        replace(argument, value=words[argument.value])
        if argument.type == "i32" and argument.value in words
        else argument
        for argument in launch.arguments
    )
    tile = registry.find(config.family).work(config, sample).tile
    launch = replace(launch, grid=(1, 1, 1), arguments=arguments)
    n = 2 * GATE_SPAN if sample.gated else 1
    return General(replace(sample, m=1, n=n, k=1), config, alignment, tile, launch)


def _config(problem: Problem, device: Device, alignment: Alignment) -> Config:
    modern, precision = has_cp_async(device), problem.precision
    copy, stages = ("async", 3) if modern else ("staged", 2)
    # The tensor-core kernel neither promotes sums nor runs tf32 before cp.async.
    if precision.sums != "tensor" or (precision.operand is F32 and not modern):
        return Config.parse(_SIMT.format(copy=copy, stages=stages))
    if alignment.a * problem.element_bytes < COPY_BYTES:
        stages = 2  # narrower vectors than cp.async copies go through registers, a buffer ahead
    return Config.parse(_MMA.format(compute=precision.name, copy=copy, stages=stages))


Ptx = Callable[[Program], bytes | CompileFailure]
"""Compiles a program's template to PTX."""

_ANY_LATER = re.compile(rb"^\s*\.target\s+sm_\d+\s*(,|$)", re.MULTILINE)
"""The target of PTX that later GPUs run. `sm_90a` and `sm_100f` are for one GPU or family."""


def portable_ptx(programs: Iterable[Program], compile: Ptx) -> dict[str, bytes]:
    """The PTX of those programs that later GPUs can run, by their keys.

    Raises:
        AutotuneError: if a template does not compile.
    """
    texts = {
        program.key: ptx_of(program, compile)
        for program in programs
        if not program.template.specific
    }
    return {key: text for key, text in texts.items() if _ANY_LATER.search(text)}


def ptx_of(program: Program, compile: Ptx) -> bytes:
    """The PTX of a program.

    Raises:
        AutotuneError: if it does not compile.
    """
    text = compile(program)
    if isinstance(text, CompileFailure):
        label = program.template.label
        raise AutotuneError(f"{label} gives no PTX for {program.arch}: {text.reason}")
    return text


def ptx_file(cubin: str) -> str:
    """The name of a kernel's PTX beside that of its cubin."""
    return f"{cubin.removesuffix('.cubin')}.ptx"


def check_ptx(format: str, ptx: bool) -> None:
    """Refuses PTX beside a format without machine code.

    Raises:
        UsageError: with the formats that take it.
    """
    if ptx and format not in ("c", "cubin"):
        raise UsageError(f"format {format!r} takes no PTX; give c or cubin")


Find = Callable[[Problem, Device], Answer | None]
"""Looks up the best configuration known for a problem on a device."""

Build = Callable[[Template, str], Program | CompileFailure]
"""Compiles a template for an architecture, or fetches it from the cache."""


class CompiledKernels:
    """The kernels of an export, of gemms or of the user.

    Attributes:
        name: the name of the library and the prefix of its functions.
        devices: the devices to export for.
        ptx: the PTX of programs that later GPUs can run, by their keys; empty unless asked for.
    """

    name: str
    devices: tuple[Device, ...]
    ptx: Mapping[str, bytes]

    @property
    def launches(self) -> tuple[tuple[Launch, Program], ...]:
        """Every launch with its program."""
        raise NotImplementedError

    @property
    def programs(self) -> dict[str, Program]:
        """Every program once, by its key."""
        return {program.key: program for _, program in self.launches}


class RecordedAlgorithm(NamedTuple):
    """The algorithm of cuBLASLt that was measured to be the fastest on a problem.

    Attributes:
        call: the call of the library.
        version: the version of the library that it was measured with, such as `13.0.0`.
    """

    call: LibraryCall
    version: str


def fastest_algorithm(record: Record | None, objective: Objective) -> RecordedAlgorithm | None:
    """The best of a problem's record by an objective, if it was measured and is an algorithm of
    cuBLASLt, whether or not its version is installed here; else None."""
    if record is None or record.evidence != "measured":
        return None
    best = record.best_by(objective)
    call = registry.plan(best.config, record.problem).library if best.library else None
    return call and RecordedAlgorithm(call, record.library_version)


Fastest = Callable[[Problem, Device], RecordedAlgorithm | None]
"""Returns the algorithm of cuBLASLt that was measured to be the fastest on a problem."""


@dataclass(frozen=True)
class ExportedGemm:
    """A problem on a device, with everything its launches need.

    Attributes:
        answer: the configuration, and where it comes from.
        alignment: the alignment that the plan expects, which is that of operands without gaps.
        plan: the launches.
        programs: the program of each launch.
        algorithm: the algorithm of cuBLASLt that was measured to be faster; None if none was.
    """

    answer: Answer
    alignment: Alignment
    plan: LaunchPlan
    programs: tuple[Program, ...]
    algorithm: RecordedAlgorithm | None = None

    @property
    def problem(self) -> Problem:
        """The problem it computes."""
        return self.answer.problem

    @property
    def device(self) -> Device:
        """The device it was chosen for."""
        return self.answer.device

    @property
    def calls_library(self) -> bool:
        """Whether the exported library can call cuBLASLt in the kernel's place.

        It cannot with a bias or scales: their addresses are part of cuBLASLt's description, which
        each call would have to allocate. Nor with sums in int32, whose alpha and beta are integers.
        """
        plain = not self.problem.has_bias and self.problem.scale == "none"
        return self.algorithm is not None and plain and self.problem.compute != "i8"


@dataclass(frozen=True)
class FallbackKernel:
    """A general kernel, compiled for a compute capability.

    It serves shapes that were not exported.
    """

    general: General
    compute_capability: tuple[int, int]
    program: Program


@dataclass(frozen=True)
class ExportedLibrary(CompiledKernels):
    """The contents of an export of gemms; see `CompiledKernels`.

    Attributes:
        gemms: the exported gemms, by device in the order of the caller, then by size.
        fallbacks: the general kernels for each compute capability and kind of gemm; of each kind,
            the one that needs more alignment comes first.
    """

    name: str
    devices: tuple[Device, ...]
    gemms: tuple[ExportedGemm, ...]
    fallbacks: tuple[FallbackKernel, ...]
    ptx: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def launches(self) -> tuple[tuple[Launch, Program], ...]:
        """Every launch with its program, general kernels included."""
        exported = (
            pair
            for gemm in self.gemms
            for pair in zip(gemm.plan.launches, gemm.programs, strict=True)
        )
        general = ((fallback.general.launch, fallback.program) for fallback in self.fallbacks)
        return *exported, *general

    @property
    def counters(self) -> int:
        """Number of 32-bit counters, which all gemms share: the most that any of them needs."""
        return max((gemm.plan.counters for gemm in self.gemms), default=0)


def gather(
    name: str,
    problems: Sequence[Problem],
    devices: Sequence[Device],
    find: Find,
    build: Build,
    *,
    algorithm: Fastest = lambda *_: None,
    fallback: bool = True,
    ptx: Ptx | None = None,
) -> ExportedLibrary:
    """Looks up and compiles the contents of an export.

    Args:
        name: the name of the library.
        problems: the problems to export.
        devices: the devices to export for.
        find: looks up the best configuration known for a problem on a device.
        build: compiles a template for an architecture, or fetches it from the cache.
        algorithm: returns the algorithm of cuBLASLt that was measured to be the fastest.
        fallback: whether to add general kernels for all other shapes.
        ptx: compiles a program to PTX, which is added for later GPUs; None adds none.

    Raises:
        NotFoundError: if no kernel can run one of the problems; a `FrozenError` if the mode is
            frozen and it is not recorded.
        AutotuneError: if a kernel does not compile.
    """
    problems, devices = sorted(set(problems)), list(dict.fromkeys(devices))
    gemms = [
        replace(_export(problem, device, find, build), algorithm=algorithm(problem, device))
        for device in devices
        for problem in problems
    ]
    fallbacks = _fallbacks(problems, devices, build) if fallback else ()
    library = ExportedLibrary(name, tuple(devices), tuple(gemms), tuple(fallbacks))
    if ptx is None:
        return library
    return replace(library, ptx=portable_ptx(library.programs.values(), ptx))


def _export(problem: Problem, device: Device, find: Find, build: Build) -> ExportedGemm:
    answer = find(problem, device)
    if answer is None and settings.mode().frozen:
        raise FrozenError(unrecorded(problem, device))
    if answer is None:
        raise NotFoundError(f"{unserved(problem, device)}; leave it out")
    answer, alignment = without_library(answer), Alignment.dense(problem)
    plan = registry.plan(answer.config, problem, alignment)
    programs = tuple(_compile(launch.template, device.arch, build) for launch in plan.launches)
    return ExportedGemm(answer, alignment, plan, programs)


def _fallbacks(
    problems: Iterable[Problem], devices: Iterable[Device], build: Build
) -> Iterable[FallbackKernel]:
    fallbacks: dict[tuple[tuple[int, int], Problem, Alignment], FallbackKernel] = {}
    for device in devices:
        for problem in problems:
            for general in generals(problem, device):
                key = device.compute_capability, general.problem, general.alignment
                if key not in fallbacks:
                    program = _compile(general.launch.template, device.arch, build)
                    fallbacks[key] = FallbackKernel(general, device.compute_capability, program)
    return fallbacks.values()


def _compile(template: Template, arch: str, build: Build) -> Program:
    built = build(template, arch)
    if isinstance(built, CompileFailure):
        raise AutotuneError(f"{template.label} does not compile for {arch}: {built.reason}")
    return built
