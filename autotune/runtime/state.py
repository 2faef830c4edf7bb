"""The runtime state: everything that stays loaded between calls."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.cuda import cublaslt
from autotune.cuda.launches import Dependence
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import AutotuneError, FrozenError, MissingError, NotFoundError
from autotune.families.config import Config
from autotune.families.plan import Alignment, LaunchPlan, Template
from autotune.lookup.answer import Answer, unrecorded, without_faulty_vendor, without_library
from autotune.measure.objective import HOT, Objective
from autotune.model.space import unserved
from autotune.problem import Problem
from autotune.problem.call import BY_NAME, Call
from autotune.problem.vendor_faults import known_fault
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.frameworks import Framework, framework_of
from autotune.runtime.launcher import (
    BoundGemm,
    Driver,
    Executable,
    Gpu,
    LibraryExecutable,
    in_order,
)
from autotune.runtime.operands import NOTHING, Addresses, CallOptions, CheckedOperands
from autotune.settings import Mode

Find = Callable[[Problem, Device, Objective], Answer | None]

Plan = Callable[[Config, Problem, Alignment], LaunchPlan]

Compile = Callable[[Template, str], Program | CompileFailure]

Reads = Mapping[str, tuple[int, Hashable]]
"""The address and the signature of each operand of a call, by its name in `OPERANDS`."""

Tuner = Callable[[Problem, Device], object]

ExecutableKey = tuple[Config, Problem, int, Alignment]
"""A configuration, its problem, the GPU, and the alignment of the operands."""

AUTO = Mode()

# Answers that come from tuning this very problem or a range around it.
TUNED = ("exact", "range")

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"


class UntunedWarning(UserWarning):
    """A shape runs with a configuration that was not tuned for it."""


class Runtime:
    """The state that stays loaded between calls: GPUs, answers of the look-up, and executables.

    Threads may share it.

    Args:
        driver: the CUDA driver.
        find: looks up the best configuration known for a problem on a device, hot or cold.
        plan: returns the launches of a configuration.
        build: compiles a template for an architecture, or fetches it from the cache.
        mode: what may happen at a call without a record.
    """

    def __init__(
        self, driver: Driver, find: Find, plan: Plan, build: Compile, mode: Mode = AUTO
    ) -> None:
        self.driver, self.mode = driver, mode
        self._find = find
        self._plan = plan
        self._build = build
        self._lock = threading.RLock()
        self._frameworks: dict[type, Framework] = {}
        self._gpus: dict[int, Gpu] = {}
        self._answers: dict[tuple[Problem, int, Objective], Answer] = {}
        self._warned: set[tuple[Problem, int]] = set()
        self._advised: set[str] = set()
        self._executables: dict[ExecutableKey, Executable] = {}
        self._loading: dict[ExecutableKey, threading.Lock] = {}
        self._plans: dict[tuple[LaunchPlan, int], Executable] = {}
        self._verified: set[ExecutableKey] = set()

    def framework(self, array: Any, name: str) -> Framework:
        """The library that an array is from (see `framework_of`)."""
        kind = type(array)
        framework = self._frameworks.get(kind)
        if framework is None:
            framework = self._frameworks[kind] = framework_of(array, name, self.driver.ordinal)
        return framework

    def gpu(self, ordinal: int) -> Gpu:
        """A GPU of this machine by its number."""
        with self._lock:
            if ordinal not in self._gpus:
                self._gpus[ordinal] = Gpu(self.driver, ordinal)
            return self._gpus[ordinal]

    def resolve(self, problem: Problem, ordinal: int, objective: Objective = HOT) -> Answer:
        """The configuration to run for a problem, looked up once.

        Raises:
            NotFoundError: if no kernel can run it; a `FrozenError` if the mode is frozen and there
                is no record.
        """
        with self._lock:
            answer = self._answers.get((problem, ordinal, objective))
            if answer is None:
                device = self.gpu(ordinal).device
                answer = self._find(problem, device, objective)
                if answer is None and self.mode.frozen:
                    raise FrozenError(unrecorded(problem, device))
                if answer is None:
                    raise NotFoundError(unserved(problem, device))
                if answer.vendor:
                    answer = without_faulty_vendor(answer, self.cublas_version)
                    if not answer.vendor:
                        settings.warn_once(answer.note)
                self._answers[problem, ordinal, objective] = answer
            return answer

    @cached_property
    def cublas_version(self) -> str:
        """The version of the installed cuBLAS, such as `13.1.0`; empty if there is none."""
        return cublaslt.version()

    def vendor_fault(self, problem: Problem, ordinal: int) -> str | None:
        """The known fault of the installed cuBLAS that touches a problem; None without one."""
        card = self.gpu(ordinal).device.compute_capability
        return known_fault(self.cublas_version, card, problem)

    def has_answer(self, problem: Problem, ordinal: int, objective: Objective = HOT) -> bool:
        """Whether the problem was looked up already."""
        return (problem, ordinal, objective) in self._answers

    def answer(
        self, problem: Problem, ordinal: int, objective: Objective = HOT, library: bool = True
    ) -> Answer:
        """The configuration to run for a problem, without `library` none of cuBLASLt; warns once if
        it is not tuned, and says once what to run on a card without records."""
        with self._lock:
            answer = self.resolve(problem, ordinal, objective)
            if not library:
                answer = without_library(answer)
            if answer.how not in TUNED and (problem, ordinal) not in self._warned:
                advice = {answer.advice} - self._advised - {""}
                self._advised |= advice
                note = "; ".join((answer.note, *advice))
                warnings.warn(note, UntunedWarning, stacklevel=_stack_level())
                self._warned.add((problem, ordinal))
            return answer

    def executable(
        self, config: Config, problem: Problem, ordinal: int, alignment: Alignment
    ) -> Executable:
        """The launch plan of a configuration, compiled and loaded.

        It compiles without the lock, so that other threads can launch what is loaded. Threads that
        want the same executable wait for the first.

        Raises:
            AutotuneError: if it does not compile.
            RunnerError: if the GPU cannot load it.
        """
        key = config, problem, ordinal, alignment
        executable = self._executables.get(key)
        if executable is None:
            with self._loading.setdefault(key, threading.Lock()):
                executable = self._executables.get(key) or self._load(*key)
        return executable

    def bind(
        self,
        checked: CheckedOperands,
        addresses: Addresses,
        options: CallOptions,
        dependent: Dependence,
    ) -> BoundGemm:
        """The bound gemm of a call, which enqueues the launches of all its offsets.

        Raises:
            FrozenError: if the mode forbids what the call needs.
            AutotuneError: if a kernel does not compile.
        """
        if checked.config == NOTHING:
            raise FrozenError(
                f"{checked.problem} has no record and compiled kernel, the mode is frozen, and "
                "cuBLAS does not serve this call: tune the problem where that is allowed"
            )
        shape = checked.config, checked.problem, checked.ordinal, checked.alignment
        executable = self.executable(*shape)
        factors = options.alpha, options.beta
        gemms = []
        for offsets in checked.offsets:
            at = {name: start and start + offsets.get(name, 0) for name, start in addresses.items()}
            call = Call(at, checked.pitches, checked.strides, *factors)
            gemms.append(executable.bind(call, dependent))
        if len(gemms) == 1:
            return gemms[0]
        enqueue = in_order((gemm.enqueue, gemm) for gemm in gemms)
        return BoundGemm(checked.ordinal, enqueue, None)

    def loaded(self, plan: LaunchPlan, ordinal: int) -> Executable:
        """A plan that belongs to no problem, compiled and loaded once.

        Raises:
            AutotuneError: if it does not compile.
            RunnerError: if the GPU cannot load it.
        """
        with self._lock:
            if (plan, ordinal) not in self._plans:
                gpu = self.gpu(ordinal)
                self._plans[plan, ordinal] = Executable(gpu, plan, self._programs(plan, gpu))
            return self._plans[plan, ordinal]

    def verify(self, config: Config, problem: Problem, ordinal: int, alignment: Alignment) -> None:
        """Checks once that a configuration computes exact integers (see `first_use.check`).

        Raises:
            VerificationError: if it does not; it will be checked again.
        """
        key = config, problem, ordinal, alignment
        if key in self._verified:
            return
        executable = self.executable(*key)
        with self._lock:
            if key not in self._verified:
                from autotune.runtime import first_use  # imports NumPy, which others need not

                first_use.check(self.gpu(ordinal), executable, problem, alignment)
                self._verified.add(key)

    def warm(
        self,
        problems: Iterable[Problem],
        ordinal: int,
        jobs: int,
        objective: Objective = HOT,
        library: bool = True,
    ) -> tuple[Answer, ...]:
        """Looks problems up one by one, compiles their kernels for operands without gaps in `jobs`
        threads, and loads them.

        Raises:
            AutotuneError: if no kernel can run a problem, or a kernel does not compile.
        """
        answers = tuple(self.answer(problem, ordinal, objective, library) for problem in problems)
        plans: dict[ExecutableKey, LaunchPlan] = {}
        for answer in answers:
            dense = Alignment.dense(answer.problem)
            key = answer.config, answer.problem, ordinal, dense
            if key not in self._executables:
                plans[key] = self._plan(answer.config, answer.problem, dense)
        gpu = self.gpu(ordinal)
        templates = {launch.template: None for plan in plans.values() for launch in plan.launches}
        with ThreadPoolExecutor(jobs) as pool:
            compiled = pool.map(lambda template: self.program(template, gpu.device), templates)
            programs = dict(zip(templates, compiled, strict=True))
        with self._lock:
            for key, plan in plans.items():
                if key not in self._executables:
                    loaded = [programs[launch.template] for launch in plan.launches]
                    self._executables[key] = self._made(key, plan, loaded)
        return answers

    def forget(self, problem: Problem) -> None:
        """Looks the problem up again when it is next needed, because it has been tuned since."""
        with self._lock:
            for key in [key for key in self._answers if key[0] == problem]:
                del self._answers[key]

    def describe(self, array: Any, name: str) -> ArrayInfo:
        """An array in the terms of `arrays.check`."""
        return self.framework(array, name).describe(array, name)

    def infos(self, operands: Mapping[str, Any]) -> dict[str, ArrayInfo]:
        """The operands of a call, by their names in `OPERANDS`, in the terms of `arrays.check`."""
        return {
            name: self.describe(array, BY_NAME[name].argument) for name, array in operands.items()
        }

    def reads(self, operands: Mapping[str, Any]) -> Reads:
        """The address and the signature of each operand of a call."""
        return {
            name: self.framework(array, BY_NAME[name].argument).read(array)
            for name, array in operands.items()
        }

    def program(self, template: Template, device: Device) -> Program:
        """A template compiled for a device.

        Raises:
            AutotuneError: if it does not compile.
        """
        built = self._build(template, device.arch)
        if isinstance(built, CompileFailure):
            raise AutotuneError(
                f"{template.label} does not compile for {device.arch}: {built.reason}"
            )
        return built

    def _load(
        self, config: Config, problem: Problem, ordinal: int, alignment: Alignment
    ) -> Executable:
        gpu, plan = self.gpu(ordinal), self._plan(config, problem, alignment)
        try:
            programs = self._programs(plan, gpu)
        except MissingError:
            # What came with the package is compiled for whole vectors and for single elements.
            plan = self._plan(config, problem, Alignment(1, 1, 1))
            programs = self._programs(plan, gpu)
        with self._lock:
            # `warm` may have loaded it meanwhile.
            key = config, problem, ordinal, alignment
            return self._executables.setdefault(key, self._made(key, plan, programs))

    def _made(
        self, key: ExecutableKey, plan: LaunchPlan, programs: Sequence[Program]
    ) -> Executable:
        _, problem, ordinal, alignment = key
        if plan.library is None:
            return Executable(self.gpu(ordinal), plan, programs)

        def otherwise() -> Executable:
            own = self.answer(problem, ordinal, library=False)
            return self.executable(own.config, problem, ordinal, alignment)

        return LibraryExecutable(self.gpu(ordinal), plan, otherwise)

    def _programs(self, plan: LaunchPlan, gpu: Gpu) -> list[Program]:
        return [self.program(launch.template, gpu.device) for launch in plan.launches]


def addresses_of(reads: Reads) -> dict[str, int]:
    """The addresses of a call's operands."""
    return {name: address for name, (address, _) in reads.items()}


def _stack_level() -> int:
    """The number of frames up to the package's caller, for `warnings.warn`."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    return level
