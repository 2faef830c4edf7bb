"""The pipeline: compiler threads prepare candidates while devices measure earlier ones.

`prepare` makes one candidate, or says why it may not run; `ahead` prepares several at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from itertools import islice
from math import prod
from threading import get_ident
from time import monotonic

from autotune.cores import available
from autotune.cuda.compiler import stop_compiling
from autotune.cuda.program import CompileFailure, Program
from autotune.device import CLUSTER_SIZES, Device
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import OWN_RESOURCES, Launch, LaunchPlan, Resources, Template
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.runner import Candidate, Runner
from autotune.tuning.trials import Trial

Ready = tuple[Config, Candidate | Failure]

Spare = Callable[[Callable[[Config], bool]], Config | None]

Prepared = Generator[Ready, None, None]

Compiled = Future[Program | CompileFailure]

Measure = Callable[[Runner, Candidate], Trial | None]

KEPT = 1024
"""Programs kept in memory: those of a whole search, 50 MB."""

READY = 4
"""Candidates under way besides those that compile, so that the next is ready before the device is.
Each is proposed without the outcomes of the others, so more would cost trials."""

GROWTH = 2
"""Growth of the window when the device waits for the compiler."""

WINDOW = 12
"""Candidates under way where outcomes have no noise. It does not depend on the number of cores, so
that a seed gives the same search on every machine."""


def cores() -> int:
    """Default number of compiler threads: the available cores, less one to feed the device."""
    return max(1, available() - 1)


def ahead(
    configs: Iterable[Config],
    compiler: Compiler,
    *,
    ordered: bool,
    window: int | None = None,
    first: int | None = None,
    spare: Spare = lambda _: None,
    deadline: float = math.inf,
    begun: Callable[[], None] = lambda: None,
) -> Prepared:
    """Prepares configurations, `window` of them under way at once.

    A configuration is taken from `configs` only when there is room for it. Close the iterator to
    drop queued compilations.

    Args:
        configs: the configurations to prepare.
        compiler: compiles their programs.
        ordered: gives candidates out in the order of `configs`, so that what is taken depends on
            what the caller did with earlier candidates and never on how fast they compile.
            Otherwise the first to be ready comes first.
        window: how many may be under way; by default `WINDOW` in order and otherwise at most
            `READY` more than compiler threads, but one if the runner knows its configurations: it
            needs no compiler, and proposing ahead only costs. The default out of order shrinks
            while more than `READY` are ready, and grows when none is.
        first: how many to begin with out of order; by default as many as may be.
        spare: proposes a configuration whose programs are compiled, so that the device has work;
            asked whenever nothing is ready and order does not matter.
        deadline: when to give up waiting for the compiler, by `time.monotonic`.
        begun: called before a candidate is given out, once the first ones compile.
    """
    runner = compiler.runner
    most = None
    if window is None and runner.known() is None:
        most = WINDOW if ordered else compiler.jobs + READY
        window = most if ordered else min(most, first or most)
    source, started = iter(configs), False
    waiting: list[_Slot] = []

    def ready() -> bool:
        return not ordered and _ready(waiting) is not None

    try:
        while True:
            if most and started and not ordered:
                window = _adapted(window or 1, most, waiting)
            # Once one is ready, at most one more begins, in place of the last one given out.
            room = max(0, (window or 1) - len(waiting))
            for config in islice(source, min(room, 1) if ready() else room):
                waiting.append(compiler.begin(config))
                if ready():
                    break
            if not waiting:
                return
            begun()
            extra = None if ordered or ready() else spare(compiler.has_compiled)
            if extra is not None:
                slot = compiler.begin(extra)
            elif (place := _first_ready(waiting[:1] if ordered else waiting, deadline)) is None:
                return
            else:
                slot = waiting.pop(place)
            started = True
            yield slot.plan.config, prepare(slot.plan, runner, slot.program)
    finally:
        compiler.drop(waiting)


@dataclass(frozen=True)
class _Slot:
    """A configuration under way: its launches and their programs."""

    plan: LaunchPlan
    programs: Mapping[Template, Compiled]

    @property
    def ready(self) -> bool:
        return all(program.done() for program in self.programs.values())

    def program(self, template: Template, arch: str) -> Program | CompileFailure:
        """The template's program; waits for it."""
        del arch
        return self.programs[template].result()


class Compiler:
    """Compiles programs in threads and keeps the latest: a template that several configurations
    share is compiled once. Close it to drop what is queued.

    Args:
        compile: makes a program of a template for an architecture; what it raises is a failure of
            the candidate, unless it is an `AutotuneError`.
        plan: the launches of a configuration.
        runner: says which resources it knows, and for which device to compile.
        jobs: compiler threads; `cores()` by default.
    """

    def __init__(
        self,
        compile: Compile,
        plan: Callable[[Config], LaunchPlan],
        runner: Runner,
        jobs: int | None = None,
    ) -> None:
        self.runner, self.jobs = runner, jobs or cores()
        self._compile, self._plan = compile, plan
        self._identifiers = identifiers = list[int]()  # the threads do not hold the compiler
        self._threads = ThreadPoolExecutor(
            self.jobs, "compile", lambda: identifiers.append(get_ident())
        )
        self._programs: dict[Template, Compiled] = {}

    def begin(self, config: Config) -> _Slot:
        """Starts compiling, unless the runner knows the configuration's resources."""
        plan = self._plan(config)
        launches = () if self.runner.resources(config) is not None else plan.launches
        templates = [launch.template for launch in launches]
        return _Slot(plan, {template: self._program(template) for template in templates})

    def begin_first(self, configs: Sequence[Config]) -> None:
        """Starts compiling as many of these as there are compilers."""
        for config in configs[: self.jobs]:
            self.begin(config)

    def has_compiled(self, config: Config) -> bool:
        """Whether all programs of a configuration are in memory."""
        programs = [self._programs.get(launch.template) for launch in self._plan(config).launches]
        return all(program is not None and program.done() for program in programs)

    def drop(self, slots: Iterable[_Slot]) -> None:
        """Drops their programs that have not begun to compile."""
        for slot in slots:
            for template, program in slot.programs.items():
                if program.cancel():
                    self._programs.pop(template, None)

    def close(self) -> None:
        """Drops queued compilations and ends those that run."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        stop_compiling(self._identifiers)

    def _program(self, template: Template) -> Compiled:
        if template not in self._programs:
            if len(self._programs) == KEPT:
                del self._programs[next(iter(self._programs))]
            arch = self.runner.device.arch
            self._programs[template] = self._threads.submit(
                _compiled, self._compile, template, arch
            )
        return self._programs[template]


class DevicePool:
    """Gives each candidate to the first idle device. Close it after use.

    Attributes:
        size: number of devices.
        busy_s: total device-seconds.
        baseline: the vendor baseline, once it could be timed without waiting for the library.

    Args:
        runners: of devices of one model.
        measure: makes a trial of a candidate on a runner, None if the time was over; called in
            that device's thread.
        ahead: whether the next candidate is prepared while a device measures the last one.
    """

    def __init__(self, runners: Sequence[Runner], measure: Measure, *, ahead: bool) -> None:
        self._measure, self._ahead = measure, ahead
        self._idle = list(runners)
        self._first, self.size = runners[0], len(runners)
        self._threads = ThreadPoolExecutor(len(runners), "measure")
        self._running: dict[Future[Trial | None], Runner] = {}
        self.busy_s = 0.0
        self.baseline: Measurement | None = None

    def trials(self, prepared: Iterable[Ready], time_left: Callable[[], bool]) -> Iterator[Trial]:
        """Finished trials, until there is no time left.

        The devices measure while the next candidate is proposed and prepared.
        """
        for config, candidate in prepared:
            if isinstance(candidate, Failure):
                yield Trial(config, candidate)
                continue
            if not self._idle:
                yield from self._wait()
            if not time_left():
                break
            runner = self._idle.pop()
            self._running[self._threads.submit(self._timed, runner, candidate)] = runner
            if not self._ahead:
                yield from self._wait()
        while self._running:
            yield from self._wait()

    def close(self) -> None:
        """Waits for running trials to finish."""
        self._threads.shutdown()

    def _wait(self) -> list[Trial]:
        """Waits for at least one trial to finish; returns the finished ones."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        self._idle += [self._running.pop(future) for future in done]
        return [trial for future in done if (trial := future.result()) is not None]

    def _timed(self, runner: Runner, candidate: Candidate) -> Trial | None:
        """A trial on the runner; its seconds count as busy."""
        began = monotonic()
        try:
            if runner is self._first and self.baseline is None and runner.baseline_ready:
                self.baseline = runner.baseline()
            return self._measure(runner, candidate)
        finally:
            self.busy_s += monotonic() - began


def _compiled(compile: Compile, template: Template, arch: str) -> Program | CompileFailure:
    """The program; a compiler that breaks down fails this candidate, a missing one ends the run."""
    try:
        return compile(template, arch)
    except AutotuneError:
        raise
    except Exception as error:
        reason = f"the compiler broke down: {type(error).__name__}: {error}"
        return CompileFailure(template, arch, reason.partition("\n")[0], str(error))


def _adapted(window: int, most: int, waiting: Sequence[_Slot]) -> int:
    """A larger window if the device waits for the compiler, a smaller one if several wait for the
    device: they were proposed without the latest outcomes."""
    ready = sum(slot.ready for slot in waiting)
    if not ready:
        return min(window + GROWTH, most)
    return min(window - 1, len(waiting)) if ready > READY else window


def _ready(waiting: Sequence[_Slot]) -> int | None:
    """The place of the first slot that is ready."""
    return next((place for place, slot in enumerate(waiting) if slot.ready), None)


def _first_ready(waiting: Sequence[_Slot], deadline: float) -> int | None:
    """Waits until a slot is ready; returns the first one's place, None if the deadline is over."""
    while (place := _ready(waiting)) is None:
        left = deadline - monotonic()
        if left <= 0:
            return None
        programs = [program for slot in waiting for program in slot.programs.values()]
        pending = [program for program in programs if not program.done()]
        wait(pending, None if left == math.inf else left, FIRST_COMPLETED)
    return place


Compile = Callable[[Template, str], Program | CompileFailure]

SPILL_LIMIT = 40
"""Bytes a thread that a kernel may spill, stores and loads together, and still be tried: a register
or two kept until a tile's end. Timing decides better about so little."""


def prepare(plan: LaunchPlan, runner: Runner, compile: Compile) -> Candidate | Failure:
    """The candidate that runs a plan's launches, or why it may not run.

    Every launch is compiled, unless the runner knows the resources already. The compiler's
    registers and spills, and the bounds that the kernel declares, decide whether the candidate may
    run; spills are accepted where the plan has local memory. A library's call is ready as it is.
    """
    if plan.library:
        return Candidate(plan.config, plan, (), OWN_RESOURCES)
    resources = runner.resources(plan.config)
    if resources is not None:
        failure = _over_budget(resources, plan.main, runner.device)
        return failure or Candidate(plan.config, plan, (), resources)
    programs: list[Program] = []
    launches: list[Launch] = []
    for launch in plan.launches:
        program = compile(launch.template, runner.device.arch)
        if isinstance(program, CompileFailure):
            return Failure("compile", program.reason)
        launch = with_cluster(launch, program)
        failure = None if plan.local_memory else _spilled(program)
        failure = failure or _refused(launch, program)
        failure = failure or _over_budget(resources_of(launch, program), launch, runner.device)
        if failure is not None:
            return failure
        programs.append(program)
        launches.append(launch)
    dominant = resources_of(plan.main, programs[plan.product])
    plan = replace(plan, launches=tuple(launches))
    return Candidate(plan.config, plan, tuple(programs), dominant)


def resources_of(launch: Launch, program: Program) -> Resources:
    """The SM resources of a compiled launch."""
    return Resources(
        threads=launch.threads,
        registers=program.registers,
        shared=program.shared + launch.shared,
        local=program.local,
        barriers=program.barriers,
    )


def with_cluster(launch: Launch, program: Program) -> Launch:
    """The launch with the cluster that its kernel declares, if devices state how many of that size
    are resident."""
    size = program.bounds.cluster_blocks
    return replace(launch, cluster=size) if size in CLUSTER_SIZES else launch


def crowded(launch: Launch, resources: Resources, device: Device) -> str | None:
    """Why the blocks of a cooperative launch cannot all be resident, with the numbers; None if they
    can."""
    resident = resources.occupancy(device, launch.cluster).blocks_per_sm
    blocks, most = prod(launch.grid), resident * device.sms
    if not launch.cooperative or blocks <= most:
        return None
    return (
        f"{blocks} blocks of a cooperative launch, {device.name} holds {most} at once "
        f"({resident} on each of {device.sms} SMs)"
    )


def _refused(launch: Launch, program: Program) -> Failure | None:
    refusal = program.bounds.refusal(launch)
    if refusal is None:
        return None
    return Failure("resources", f"{launch.template.kernel}: {': '.join(refusal)}")


def _spilled(program: Program) -> Failure | None:
    if program.local <= program.spills <= SPILL_LIMIT:
        return None
    return Failure(
        "resources",
        f"{program.template.kernel} spills: {program.spills} bytes of spills and {program.local} "
        f"bytes of local memory a thread, at {program.registers} registers",
    )


def _over_budget(resources: Resources, launch: Launch, device: Device) -> Failure | None:
    resident = resources.occupancy(device, launch.cluster)
    if resident.blocks_per_sm:
        detail = crowded(launch, resources, device)
        return Failure("resources", f"{launch.template.kernel}: {detail}") if detail else None
    return Failure(
        "resources",
        f"{launch.template.kernel}: no block fits an SM of {device.name}: "
        f"{resources.threads} threads of {resources.registers} registers, "
        f"{resources.shared} bytes of shared memory (limited by {resident.limiter})",
    )
