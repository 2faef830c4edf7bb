"""A runtime on the fake GPU that records its look-ups, plans and compilations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.errors import ArrayError, ProblemError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import (
    each_type,
    epilogue,
    operands,
    scale,
    transposes,
    words,
)
from autotune.lookup.answer import Answer, How
from autotune.measure.objective import Objective
from autotune.problem import Problem
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime
from support.fake_driver import FakeCuda, Matrix
from support.fake_frameworks import Interface
from support.numpy_types import encoded

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})


SPLIT = Config("split")


TYPED = Config("typed")


@dataclass
class Case:
    """A runtime on the fake GPU; a test sets its answers, and reads its look-ups and programs."""

    cuda: FakeCuda = field(default_factory=FakeCuda)
    config: Config | None = NAIVE
    config_cold: Config | None = None
    how: How = "exact"
    advice: str = ""
    vendor: bool = False
    reason: str | None = None
    looked_up: list[Problem] = field(default_factory=list)
    built: list[str] = field(default_factory=list)
    plans: list[LaunchPlan] = field(default_factory=list)
    alignments: list[Alignment] = field(default_factory=list)
    seed: int = 1

    def __post_init__(self) -> None:
        self.runtime = Runtime(Driver(self.cuda), self._find, self._plan, self._build)
        self.matmul = Matmul(self.runtime)

    def matrix(
        self, *shape: int, ordinal: int = 0, dtype: str = "float32", factor: float = 1
    ) -> Matrix:
        """A random matrix in the memory of a device."""
        self.seed += 1
        values = factor * np.random.default_rng(self.seed).standard_normal(shape, np.float32)
        return self.cuda.hold(encoded(values, dtype), ordinal)

    def array(self, *shape: int, ordinal: int = 0, dtype: str = "float32") -> Interface:
        """A random matrix as an array with only the array interface."""
        return Interface(self.matrix(*shape, ordinal=ordinal, dtype=dtype))

    def operands(self, m: int, n: int, k: int) -> tuple[Interface, Interface, Interface]:
        return self.array(m, k), self.array(k, n), self.array(m, n)

    def refused(self, *operands: Any, **keywords: Any) -> str:
        """The message of matmul's refusal, which is one line; asserts that nothing was launched."""
        with pytest.raises((ArrayError, ProblemError)) as error:
            self.matmul(*operands, **keywords)
        assert self.cuda.launches == []
        assert "\n" not in str(error.value)
        return str(error.value)

    def calls(self, act: Callable[[], Any]) -> list[str]:
        """The functions of the driver that `act` calls."""
        before = len(self.cuda.calls)
        act()
        return self.cuda.calls[before:]

    def _find(self, problem: Problem, device: Device, objective: Objective) -> Answer | None:
        self.looked_up.append(problem)
        config = self.config_cold if objective == "cold" and self.config_cold else self.config
        if config is None:
            return None
        note = f"{problem} is not tuned; `autotune tune {problem}` finds its own"
        return Answer(
            *(problem, device, config, self.how, "predicted", None, 1.0, note),
            vendor=self.vendor,
            advice=self.advice,
        )

    def _build(self, template: Template, arch: str) -> Program | CompileFailure:
        self.built.append(f"{symbol_of(template)} for {arch}")
        if self.reason is not None:
            return CompileFailure(template, arch, self.reason, "")
        symbol = symbol_of(template)
        cubin = b"cubin of " + symbol.encode()
        return Program(template, arch, cubin, symbol, 32, 1024, 0, 0, 1, "fake", symbol, "")

    def _plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        if config.family == "split":
            plan = split_plan(problem)
        elif config.family == "typed":
            plan = typed_plan(problem, alignment)
        else:
            plan = registry.find(config.family).plan(config, problem, alignment)
        self.plans.append(plan)
        self.alignments.append(alignment)
        return plan


def symbol_of(template: Template) -> str:
    """The symbol of a fake kernel: its name and its template arguments as integers."""
    return replace(template, named=False).expression


def typed_plan(problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The plan of the naive kernel, for a fake kernel that takes all types."""
    if problem.precision.eight_bit:
        return scaled_plan(problem)
    plan = registry.find("naive").plan(NAIVE, problem, alignment)
    (launch,) = plan.launches
    arguments = *launch.template.arguments, *each_type(problem)[1:]
    template = Template("typed.cu", "typed", arguments)
    every = *launch.arguments, *words("residual", "ldr", "stride_r")
    launch = replace(launch, template=template, arguments=every)
    return replace(plan, config=TYPED, launches=(launch,))


def scaled_plan(problem: Problem) -> LaunchPlan:
    """The plan of a fake kernel for operands of 8 bits."""
    arguments = *transposes(problem), epilogue(problem), *each_type(problem), scale(problem)
    template = Template("typed.cu", "scaled", arguments)
    grid = 1, 1, problem.batch
    *plain, stride_a, stride_b, stride_c = operands(problem)
    more = words("residual", "ldr", "stride_r", "b_ready", "scale_c", "amax")
    every = *plain, *words("scale_a", "scale_b"), stride_a, stride_b, stride_c, *more
    launch = Launch(template, grid, (32, 1, 1), 0, every)
    return LaunchPlan(TYPED, (launch,))


def split_plan(problem: Problem) -> LaunchPlan:
    """Split-K: two launches, which sum two halves of K into the workspace, then into C."""

    def pointers(*names: str) -> tuple[Argument, ...]:
        return tuple(Argument("i64" if name[0] == "l" else "pointer", name) for name in names)

    def sizes(*values: int) -> tuple[Argument, ...]:
        return tuple(Argument("i32", value) for value in values)

    m, n, k = problem.m, problem.n, problem.k
    halves = (
        pointers("a", "lda", "b", "ldb", "workspace")
        + sizes(m, n, k, k // 2)
        + pointers("counters")
    )
    total = pointers("workspace", "c", "ldc") + sizes(m, n)
    scale = Argument("f32", "alpha"), Argument("f32", "beta"), *pointers("counters")
    template = Template("split.cu", "partial", (("VECTOR", 1),))
    launch = Launch(template, (2, 1, 1), (32, 1, 1), 65536, halves)
    template = replace(template, kernel="reduce")
    reduction = Launch(template, (1, 1, 1), (64, 1, 1), 0, total + scale)
    return LaunchPlan(SPLIT, (launch, reduction), 2 * m * n * 4, 1)
