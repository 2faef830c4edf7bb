"""What is exported: products with their plans and programs, and general kernels beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autotune.compiler import CompileFailure, Program
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.export.general import General, generals
from autotune.families import registry
from autotune.families.plan import Alignment, Launch, LaunchPlan, Template
from autotune.lookup.answer import Answer
from autotune.problem import Problem

Find = Callable[[Problem, Device], Answer | None]
Build = Callable[[Template, str], Program | CompileFailure]

COUNTER_BYTES = 4


@dataclass(frozen=True)
class ExportedGemm:
    """One problem on one device, ready to be launched.

    Attributes:
        answer: what runs, and why.
        alignment: what the operands have to allow: that of operands without gaps.
        plan: the launches.
        programs: the program of each.
    """

    answer: Answer
    alignment: Alignment
    plan: LaunchPlan
    programs: tuple[Program, ...]

    @property
    def problem(self) -> Problem:
        """What it computes."""
        return self.answer.problem

    @property
    def device(self) -> Device:
        """What it was chosen for."""
        return self.answer.device


@dataclass(frozen=True)
class FallbackKernel:
    """A general kernel, compiled for a compute capability."""

    general: General
    compute_capability: tuple[int, int]
    program: Program


@dataclass(frozen=True)
class ExportedLibrary:
    """All that an export holds.

    Attributes:
        name: of the library and its functions.
        devices: that it was made for, in the order in which they were given.
        products: by device in that order, then by sizes.
        fallbacks: for each compute capability and kind of product, the more demanding one first.
    """

    name: str
    devices: tuple[Device, ...]
    products: tuple[ExportedGemm, ...]
    fallbacks: tuple[FallbackKernel, ...]

    @property
    def programs(self) -> dict[str, Program]:
        """Every program once, by its key."""
        found = [program for product in self.products for program in product.programs]
        found += [fallback.program for fallback in self.fallbacks]
        return {program.key: program for program in found}

    @property
    def launches(self) -> tuple[tuple[Launch, Program], ...]:
        """Every launch, general ones too, with its program."""
        own = (
            pair
            for product in self.products
            for pair in zip(product.plan.launches, product.programs, strict=True)
        )
        return *own, *((one.general.launch, one.program) for one in self.fallbacks)

    @property
    def counters(self) -> int:
        """The 32-bit counters that any of the products needs; all share them."""
        return max((product.plan.counters for product in self.products), default=0)


def gather(
    name: str,
    problems: Sequence[Problem],
    devices: Sequence[Device],
    find: Find,
    build: Build,
    *,
    fallback: bool = True,
) -> ExportedLibrary:
    """Looks up and compiles all that an export holds.

    Args:
        name: of the library.
        problems: what it computes fast.
        devices: on which.
        find: the best that is known for a problem on a device.
        build: compiles a template for an architecture, or fetches it compiled.
        fallback: whether general kernels for all other shapes belong to it.

    Raises:
        NotFoundError: if no kernel can run one of the problems.
        AutotuneError: if one does not compile.
    """
    problems, devices = sorted(set(problems)), list(dict.fromkeys(devices))
    products = [_product(one, where, find, build) for where in devices for one in problems]
    fallbacks = _fallbacks(problems, devices, build) if fallback else ()
    return ExportedLibrary(name, tuple(devices), tuple(products), tuple(fallbacks))


def _product(problem: Problem, device: Device, find: Find, build: Build) -> ExportedGemm:
    answer = find(problem, device)
    if answer is None:
        raise NotFoundError(f"no kernel can run {problem} on {device.name}; leave it out")
    alignment = Alignment.dense(problem)
    plan = registry.plan(answer.config, problem, alignment)
    programs = tuple(_built(one.template, device.arch, build) for one in plan.launches)
    return ExportedGemm(answer, alignment, plan, programs)


def _fallbacks(
    problems: Iterable[Problem], devices: Iterable[Device], build: Build
) -> Iterable[FallbackKernel]:
    done: dict[tuple[tuple[int, int], Problem, Alignment], FallbackKernel] = {}
    for device in devices:
        for problem in problems:
            for general in generals(problem, device):
                key = device.compute_capability, general.problem, general.alignment
                if key not in done:
                    program = _built(general.launch.template, device.arch, build)
                    done[key] = FallbackKernel(general, device.compute_capability, program)
    return done.values()


def _built(template: Template, arch: str, build: Build) -> Program:
    built = build(template, arch)
    if isinstance(built, CompileFailure):
        raise AutotuneError(f"{template.expression} does not compile for {arch}: {built.reason}")
    return built
