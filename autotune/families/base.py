"""What a kernel family is: its parameters, its rules and the launches it plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.config import Config, Value
from autotune.device import Device
from autotune.plan import Alignment, LaunchPlan, Resources
from autotune.problem import Problem

# Chosen parameters; each family knows the types of its own.
Params = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """One reason for which a candidate is illegal, checked before compilation.

    Attributes:
        reason: a short name that rejections are counted under, such as `shared memory`.
        needs: the parameters that the check reads; it is made as soon as all are chosen.
        check: takes the chosen values and returns None if they are fine, else what is wrong
            with its numbers, such as `needs 294912 bytes a block, H100 allows 232448`.
    """

    reason: str
    needs: tuple[str, ...]
    check: Callable[[Params], str | None]


@dataclass(frozen=True)
class Work:
    """What the blocks of a launch do, as far as the cost model looks.

    Attributes:
        blocks: blocks of the launch.
        steps: steps of K that each makes.
        issue: warp instructions of a block for each step.
        bytes: bytes that a block asks of L2 for each step.
        latency_steps: steps that a block works on while a load is under way.
        tile: rows and columns of C that a block computes.
        partials: bytes that split-K writes and a second launch reads; 0 without.
    """

    blocks: int
    steps: int
    issue: float
    bytes: float
    latency_steps: int
    tile: tuple[int, int]
    partials: int = 0


class Family(Protocol):
    """A kernel family. Implementations hold no state.

    `domain` gives the parameters and their possible values in the order in which they are
    chosen; `rules` the reasons to reject a combination; `estimate` the resources of a
    configuration before compilation (registers are a guess, the rest is exact); `work` what the
    cost model reads; `plan` the launches. A configuration that breaks no rule has a plan for
    every alignment.
    """

    @property
    def name(self) -> str: ...

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]: ...

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]: ...

    def estimate(self, config: Config) -> Resources: ...

    def work(self, config: Config, problem: Problem) -> Work: ...

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan: ...
