"""Families that still read their parameters from a mapping. Goes when all are converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from autotune.device import Device
from autotune.families.base import Family, Work
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.families.rules import BoundRule
from autotune.problem import Problem

Params = Mapping[str, Any]


@dataclass(frozen=True)
class Rule:
    """A rule that lists what it needs and reads a mapping."""

    reason: str
    needs: tuple[str, ...]
    check: Callable[[Params], str | None]


class MappingFamily(Protocol):
    """A family that reads its parameters from a mapping."""

    @property
    def name(self) -> str: ...

    @property
    def computes(self) -> tuple[str, ...]: ...

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]: ...

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]: ...

    def estimate(self, config: Config) -> Resources: ...

    def work(self, config: Config, problem: Problem) -> Work: ...

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan: ...


@dataclass(frozen=True)
class LegacyFamily(Family[Any]):
    """A family over mappings, in the shape of the others."""

    wrapped: Any = None

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """The values of each parameter."""
        result: dict[str, tuple[Value, ...]] = self.wrapped.domain(problem, device)
        return result

    def bound_rules(self, problem: Problem, device: Device) -> tuple[BoundRule, ...]:
        """The rules for one problem on one device."""
        return tuple(_bound(rule) for rule in self.wrapped.rules(problem, device))

    def estimate(self, config: Config) -> Resources:
        """What a configuration takes of an SM."""
        result: Resources = self.wrapped.estimate(config)
        return result

    def work(self, config: Config, problem: Problem) -> Work:
        """What the blocks of a configuration do."""
        result: Work = self.wrapped.work(config, problem)
        return result

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """The launches of a configuration."""
        result: LaunchPlan = self.wrapped.plan(config, problem, alignment)
        return result


def adapted(
    family: MappingFamily,
    *,
    sources: tuple[str, ...],
    order: int,
    search_order: int,
    tensor_cores: bool,
) -> Family[Any]:
    """The family in the shape of the converted ones."""

    def unused(*_: object) -> Any:
        raise NotImplementedError

    return LegacyFamily(
        name=family.name,
        params=dict,
        sources=sources,
        precisions=family.computes,
        order=order,
        rules=(),
        resources=unused,
        block_work=unused,
        launch_plan=unused,
        tensor_cores=tensor_cores,
        search_order=search_order,
        on_ladder=True,
        wrapped=family,
    )


def _bound(rule: Rule) -> BoundRule:
    def check(chosen: tuple[Value, ...]) -> str | None:
        return rule.check(dict(zip(rule.needs, chosen, strict=True)))

    return BoundRule(rule.reason, rule.needs, check)  # type: ignore[arg-type]
