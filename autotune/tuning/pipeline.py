"""Candidates that are prepared while others are measured."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice

from autotune.compiler import CompileFailure, Program
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Template
from autotune.runners.base import Candidate, Failure, Runner
from autotune.tuning.evaluate import Compile, prepare

Ready = tuple[Config, Candidate | Failure]
Spare = Callable[[Callable[[Config], bool]], Config | None]
Prepared = Generator[Ready, None, None]

# Programs that are at hand without a look at the disk: those of a whole search, 50 MB.
KEPT = 1024


def cores() -> int:
    """Threads that compile by default: one core is left to the process that feeds the device."""
    return max(1, (os.cpu_count() or 1) - 1)


def ahead(
    configs: Iterable[Config],
    plan: Callable[[Config], LaunchPlan],
    runner: Runner,
    compile: Compile,
    *,
    window: int,
    ordered: bool,
    jobs: int | None = None,
    spare: Spare = lambda _: None,
) -> Prepared:
    """Prepares configurations, `window` of them under way at once.

    A configuration is taken from `configs` only when there is room for it. A template that
    several of those under way share, or that was lately compiled, is compiled once. Close the
    iterator to drop what is still queued.

    Args:
        configs: what to prepare.
        plan: the launches of a configuration.
        runner: says which resources it knows, and for which device to compile.
        compile: makes a program of a template for an architecture; what it raises is a failure
            of the candidate, unless it is an `AutotuneError`.
        window: how many may be under way.
        ordered: gives them out in their order, so that what is taken follows from what the caller
            did with the earlier ones and never from how fast compilation is. Otherwise each is
            given out as soon as it is ready, and of several the one that was taken first: none
            waits for another that takes long.
        jobs: threads that compile; `cores()` by default.
        spare: is asked, whenever nothing is ready and order does not matter, for a configuration
            whose programs are at hand, so that the device has something to do meanwhile.
    """
    pool = ThreadPoolExecutor(jobs or cores(), thread_name_prefix="compile")

    def compiling(template: Template) -> Future[Program | CompileFailure]:
        if template not in begun:
            if len(begun) == KEPT:
                del begun[next(iter(begun))]
            begun[template] = pool.submit(_compiled, compile, template, runner.device.arch)
        return begun[template]

    def slot_of(config: Config) -> _Slot:
        planned = plan(config)
        launches = () if runner.resources(config) is not None else planned.launches
        return _Slot(planned, {launch.template: compiling(launch.template) for launch in launches})

    def at_hand(config: Config) -> bool:
        templates = (launch.template for launch in plan(config).launches)
        return all(one in begun and begun[one].done() for one in templates)

    begun: dict[Template, Future[Program | CompileFailure]] = {}
    source = iter(configs)
    waiting: list[_Slot] = []
    try:
        while True:
            # While something is ready, one for the last one is enough: nobody waits.
            room = window - len(waiting)
            room = room if ordered or _ready(waiting) is None else min(room, 1)
            for config in islice(source, room):
                waiting.append(slot_of(config))
                if not ordered and _ready(waiting) is not None:
                    break
            if not waiting:
                return
            place = 0 if ordered else _ready(waiting)
            extra = spare(at_hand) if place is None else None
            if extra is not None:
                slot = slot_of(extra)
            else:
                slot = waiting.pop(_first_ready(waiting) if place is None else place)
            yield slot.plan.config, prepare(slot.plan, runner, slot.program)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@dataclass(frozen=True)
class _Slot:
    """A configuration under way: its launches, and the programs of them."""

    plan: LaunchPlan
    programs: Mapping[Template, Future[Program | CompileFailure]]

    @property
    def ready(self) -> bool:
        return all(program.done() for program in self.programs.values())

    def program(self, template: Template, arch: str) -> Program | CompileFailure:
        """Waits for the program."""
        del arch
        return self.programs[template].result()


def _compiled(compile: Compile, template: Template, arch: str) -> Program | CompileFailure:
    """A compiler that breaks down costs the candidate alone; one that is missing, all."""
    try:
        return compile(template, arch)
    except AutotuneError:
        raise
    except Exception as error:
        reason = f"the compiler broke down: {type(error).__name__}: {error}"
        return CompileFailure(template, arch, reason.partition("\n")[0], str(error))


def _ready(waiting: Sequence[_Slot]) -> int | None:
    """The first that is ready."""
    return next((place for place, slot in enumerate(waiting) if slot.ready), None)


def _first_ready(waiting: Sequence[_Slot]) -> int:
    """Waits until one is ready; of several the first."""
    while (place := _ready(waiting)) is None:
        programs = (program for slot in waiting for program in slot.programs.values())
        wait([one for one in programs if not one.done()], return_when=FIRST_COMPLETED)
    return place
