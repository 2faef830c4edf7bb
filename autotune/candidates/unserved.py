"""Why a device runs no kernel of a problem, and what it runs instead."""

from __future__ import annotations

from autotune.candidates import space
from autotune.candidates.family_names import AUTO, families_of
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import COMPUTES, Problem

ARCHITECTURE = "architecture"
"""The reason of the rules that refuse a device whatever the parameters are."""


def unserved(problem: Problem, device: Device, family: str = AUTO) -> str:
    """The line of an error: the rules that refuse all configurations, and the precisions that the
    device runs if its architecture is at fault."""
    names = families_of(family, problem)
    refusals = [_refusal(name, problem, device) for name in names]
    kernel = "kernel" if family == AUTO else f"{family} kernel"
    said = f"no {kernel} can run {problem} on {device.name}"
    if None not in refusals:
        # The last family asks for the least.
        return f"{said}: {refusals[-1]}; it runs {', '.join(_runs(problem, device))}"
    return f"{said}: {'; '.join(_reason(name, problem, device) for name in names)}"


def _runs(problem: Problem, device: Device) -> list[str]:
    """The precisions of which the device runs some kernel."""
    plain = {compute: Problem(problem.m, problem.n, problem.k, compute) for compute in COMPUTES}
    return [
        compute
        for compute, row in plain.items()
        if any(_refusal(name, row, device) is None for name in registry.tuned(row))
    ]


def _refusal(family: str, problem: Problem, device: Device) -> str | None:
    """Why the family runs nothing on such a device; None if it does."""
    domain = registry.serving(family, problem).domain(problem, device)
    config = Config.of(family, {name: values[0] for name, values in domain.items()})
    judged = space.Judge(family, problem, device).judged(config)
    return next((detail for rule, detail in judged if rule.reason == ARCHITECTURE), None)


def _reason(family: str, problem: Problem, device: Device) -> str:
    """The rule of a family that refuses the most configurations, with an example."""
    legal = space.feasible(problem, device, family)
    name = next(iter(legal.rejected), "it knows none")
    return f"{family}: {name}: {legal.examples.get(name, '')}".removesuffix(": ")
