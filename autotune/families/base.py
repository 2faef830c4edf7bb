"""What a kernel family is: its parameters, its rules and the launches it plans."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from autotune.config import Config, Value
from autotune.device import Device
from autotune.plan import Alignment, LaunchPlan, Resources
from autotune.problem import Problem


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
    check: Callable[[Mapping[str, Value]], str | None]


class Family(Protocol):
    """A kernel family. Implementations hold no state.

    `domain` gives the parameters and their possible values in the order in which they are
    chosen; `rules` the reasons to reject a combination; `estimate` the resources of a
    configuration before compilation (registers are a guess, the rest is exact); `plan` the
    launches. A configuration that breaks no rule has a plan for every alignment.
    """

    @property
    def name(self) -> str: ...

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]: ...

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]: ...

    def estimate(self, config: Config) -> Resources: ...

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan: ...
