"""Why a configuration won, and what the rules and the cost model say of any variant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from autotune.candidates import cost, space
from autotune.candidates.legality import FamilyRules
from autotune.candidates.space import SURVEY
from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.plan import Resources
from autotune.families.shared.accuracy import ACCURACY
from autotune.lookup.answer import Answer
from autotune.lookup.neighbours import accuracy_filter
from autotune.occupancy import Occupancy
from autotune.problem import Problem
from autotune.records import Record
from autotune.roofline import intensity
from autotune.runners.objective import HOT, Objective

Finding = Literal["holds", "slow", "broken", "not reached"]


@dataclass(frozen=True)
class RuleVerdict:
    """The verdict of a rule on a configuration.

    Attributes:
        rule: the rule's short name.
        finding: `holds`; `slow`, broken but about speed alone, so the search leaves the
            configuration out although it would run; `broken`; or `not reached`, as the rule may
            rely on a broken one before it.
        values: the parameters that the rule reads.
        detail: what is wrong, with the numbers; empty if the rule holds.
    """

    rule: str
    finding: Finding
    values: Mapping[str, Value]
    detail: str = ""


@dataclass(frozen=True)
class Fit:
    """How a configuration's blocks lie on a device.

    Attributes:
        resources: what a block takes of an SM.
        source: where its registers come from: `recorded`, `compiled` or `estimated`.
        occupancy: the resident blocks and what limits them.
        tile: rows and columns of C that a block computes at a time.
        blocks: blocks of the main launch.
        waves: how often the blocks fill the device; None if none fits.
        flop_per_byte: operations of a tile per byte of A and B that it reads.
        predicted_us: predicted time in microseconds; None if no block fits.
    """

    resources: Resources
    source: Literal["recorded", "compiled", "estimated"]
    occupancy: Occupancy
    tile: tuple[int, int]
    blocks: int
    waves: float | None
    flop_per_byte: float
    predicted_us: float | None


@dataclass(frozen=True)
class Explanation:
    """A configuration of a problem on a device: its verdicts, occupancy and times.

    Attributes:
        config: the configuration.
        rejection: why it cannot run, else the first reason why the search leaves it out; empty if
            there is none.
        verdicts: each rule; none if a parameter is missing or has a value of no kernel.
        fit: how it lies on the device; None if it is rejected by a rule that is not about speed.
        measured_us: its recorded hot time in microseconds; None if it is not recorded.
    """

    config: Config
    rejection: str
    verdicts: tuple[RuleVerdict, ...]
    fit: Fit | None
    measured_us: float | None


def least_us(problem: Problem, device: Device, objective: Objective = HOT) -> tuple[float, str]:
    """The least time that the roofline allows, in microseconds, and what sets it.

    Of runs one after another (hot) L2 may hold a part of the matrices.
    """
    seconds = objective.least_seconds(problem, device)
    compute = problem.flops / device.peak(problem.compute)
    return seconds * 1e6, "the peak" if compute >= seconds else "the memory's bandwidth"


def explain(
    config: Config,
    problem: Problem,
    device: Device,
    answer: Answer,
    compiled: Resources | None = None,
) -> Explanation:
    """Explains a configuration.

    Args:
        config: the configuration, legal or not.
        problem: the problem.
        device: the device.
        answer: the answer to a look-up of the problem, whose record may hold the configuration.
        compiled: its resources as compiled; None takes the record's or the family's estimate.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
    """
    fault = FamilyRules.of(config.family, problem, device).domain_fault(config)
    if fault is not None:
        return Explanation(config, str(fault), (), None, None)
    own = answer.record if answer.record and answer.how == "exact" else None
    verdicts = _verdicts(config, problem, device, own)
    faults = {verdict.finding: f"{verdict.rule}: {verdict.detail}" for verdict in verdicts[::-1]}
    if "broken" in faults:
        return Explanation(config, faults["broken"], verdicts, None, None)
    rejection = faults.get("slow", "")
    entries = own.entries if own else ()
    entry = next((entry for entry in entries if entry.config == config), None)
    fit = _fit(config, problem, device, compiled, entry.resources if entry else None)
    return Explanation(
        config, rejection, verdicts, fit, entry.measurement.time_us if entry else None
    )


def completed(text: str, answer: Answer) -> tuple[Config, Mapping[str, Value]]:
    """The configuration that a text names, and the parameters that it leaves open with their
    values: the winner's in its family, in another those of the fastest legal configuration by the
    cost model.

    Raises:
        ConfigError: if the text has another form, or names an unknown family or parameter.
    """
    stated, problem, device = Config.parse(text), answer.problem, answer.device
    domain = registry.serving(stated.family, problem).domain(problem, device)
    if unknown := sorted(stated.values.keys() - domain.keys()):
        raise ConfigError(
            f"{stated.family} has no parameter {', '.join(unknown)}; it has {', '.join(domain)}"
        )
    if stated.family == answer.config.family:
        base = answer.config.values
    else:
        base = _fastest(stated, problem, device) or {
            name: value for name, (value, *_) in domain.items()
        }
    values = {name: stated.values.get(name, base[name]) for name in domain}
    added = {name: value for name, value in values.items() if name not in stated.values}
    return Config.of(stated.family, values), added


def _fastest(stated: Config, problem: Problem, device: Device) -> dict[str, Value] | None:
    """The parameters of the fastest legal configuration, by the cost model, with stated values."""
    legal = space.feasible(problem, device, stated.family).configs
    agreeing = [config for config in legal if set(stated.params) <= set(config.params)]
    ranked = cost.rank(space.spread(agreeing, SURVEY), problem, device)
    return ranked[0][1].values if ranked else None


def _verdicts(
    config: Config, problem: Problem, device: Device, record: Record | None
) -> tuple[RuleVerdict, ...]:
    # The rule does not know the vendor's error, even if it is recorded.
    accuracy = accuracy_filter(problem, device, [record] if record else [], verified=True)
    values = config.values
    rules = FamilyRules.of(config.family, problem, device)
    verdicts: list[RuleVerdict] = []
    for rule, kept in zip(rules.rules, rules.verdicts, strict=True):
        detail = kept.of(values)
        if rule.reason == ACCURACY and detail is None:
            detail = accuracy.fault(config)
        finding: Finding = "holds" if detail is None else "slow" if rule.for_speed else "broken"
        read = {name: values[name] for name in rule.needs}
        if rule.reason == ACCURACY and (error := accuracy.error(config)) is not None:
            read |= {"error": f"{error:.2g}", "limit": f"{accuracy.limit.error:.2g}"}
        verdicts.append(RuleVerdict(rule.reason, finding, read, detail or ""))
        if finding == "broken":
            break
    rest = rules.rules[len(verdicts) :]
    return (*verdicts, *(RuleVerdict(rule.reason, "not reached", {}) for rule in rest))


def _fit(
    config: Config,
    problem: Problem,
    device: Device,
    compiled: Resources | None,
    recorded: Resources | None,
) -> Fit:
    family = registry.serving(config.family, problem)
    resources = compiled or recorded or family.estimate(config, problem, device)
    work = family.work(config, problem)
    resident = resources.occupancy(device, work.cluster)
    predicted = cost.predict(config, problem, device, resources)
    room = resident.blocks_per_sm * (device.sms - resident.idle_sms)
    rows, columns = work.tile
    return Fit(
        resources=resources,
        source="compiled" if compiled else "recorded" if recorded else "estimated",
        occupancy=resident,
        tile=work.tile,
        blocks=work.blocks,
        waves=work.blocks / room if room else None,
        flop_per_byte=intensity(rows, columns, element_bytes=problem.element_bytes),
        predicted_us=predicted if math.isfinite(predicted) else None,
    )
