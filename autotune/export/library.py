"""The contents of an export: gemms with their plans and programs, and general kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune import settings
from autotune.candidates.space import unserved
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import AutotuneError, FrozenError, NotFoundError
from autotune.export.general import General, generals
from autotune.export.portable import Ptx, portable_ptx
from autotune.families import registry
from autotune.families.plan import Alignment, Launch, LaunchPlan, Template
from autotune.lookup.answer import Answer, unrecorded
from autotune.problem import Problem

Find = Callable[[Problem, Device], Answer | None]
"""Looks up the best configuration known for a problem on a device."""
Build = Callable[[Template, str], Program | CompileFailure]
"""Compiles a template for an architecture, or fetches it from the cache."""

COUNTER_BYTES = 4


@dataclass(frozen=True)
class ExportedGemm:
    """One problem on one device, with everything its launches need.

    Attributes:
        answer: the configuration, and where it comes from.
        alignment: the alignment that the plan expects, which is that of operands without gaps.
        plan: the launches.
        programs: the program of each launch.
    """

    answer: Answer
    alignment: Alignment
    plan: LaunchPlan
    programs: tuple[Program, ...]

    @property
    def problem(self) -> Problem:
        """The problem it computes."""
        return self.answer.problem

    @property
    def device(self) -> Device:
        """The device it was chosen for."""
        return self.answer.device

    @property
    def vendor(self) -> bool:
        """Whether the vendor's library was measured to be faster, and one call of it does the same:
        a single product of 16 or 32 bits without an epilogue."""
        problem, answer = self.problem, self.answer
        plain = problem.batch == 1 and problem.epilogue.plain
        measured = answer.vendor and answer.how == "exact"
        return measured and plain and not problem.precision.eight_bit


@dataclass(frozen=True)
class FallbackKernel:
    """A general kernel, compiled for a compute capability.

    It serves shapes that were not exported.
    """

    general: General
    compute_capability: tuple[int, int]
    program: Program


@dataclass(frozen=True)
class ExportedLibrary:
    """The contents of an export.

    Attributes:
        name: the name of the library and the prefix of its functions.
        devices: the devices to export for, in the order of the caller.
        gemms: the exported gemms, by device in that order, then by size.
        fallbacks: the general kernels for each compute capability and kind of gemm; of each kind,
            the one that needs more alignment comes first.
        ptx: the PTX of programs that later GPUs can run, by their keys; empty unless asked for.
    """

    name: str
    devices: tuple[Device, ...]
    gemms: tuple[ExportedGemm, ...]
    fallbacks: tuple[FallbackKernel, ...]
    ptx: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def programs(self) -> dict[str, Program]:
        """Every program once, by its key."""
        programs = [program for gemm in self.gemms for program in gemm.programs]
        programs += [fallback.program for fallback in self.fallbacks]
        return {program.key: program for program in programs}

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
        fallback: whether to add general kernels for all other shapes.
        ptx: compiles a program to PTX, which is added for later GPUs; None adds none.

    Raises:
        NotFoundError: if no kernel can run one of the problems; a `FrozenError` if the mode is
            frozen and it is not recorded.
        AutotuneError: if a kernel does not compile.
    """
    problems, devices = sorted(set(problems)), list(dict.fromkeys(devices))
    gemms = [_export(problem, device, find, build) for device in devices for problem in problems]
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
    alignment = Alignment.dense(problem)
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
