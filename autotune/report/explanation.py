"""Why a configuration won, and what the rules and the cost model say of any variant."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families import cublaslt, registry
from autotune.families.config import Config, Value
from autotune.families.plan import OWN, Resources
from autotune.families.summation import ACCURACY
from autotune.lookup.answer import Answer
from autotune.lookup.neighbours import accuracy_filter
from autotune.measure.measurement import TIE, tied
from autotune.measure.objective import HOT, Objective
from autotune.model import cost, space
from autotune.model.legality import FamilyRules, rules_of
from autotune.model.space import SAMPLE
from autotune.occupancy import Occupancy
from autotune.problem import Problem
from autotune.records import Entry, Record
from autotune.report import precision, us, us_of, vendor
from autotune.report.tables import ConfigText, FittedTable
from autotune.roofline import attainable, intensity

Finding = Literal["holds", "slow", "broken", "not reached"]


@dataclass(frozen=True)
class RuleResult:
    """The result of a rule on a configuration.

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
    """The placement of a configuration's blocks on a device.

    Attributes:
        resources: resources of an SM that a block takes.
        source: where its registers come from: `recorded` or `estimated`.
        occupancy: the resident blocks and what limits them.
        tile: rows and columns of C that a block computes at a time.
        blocks: blocks of the main launch.
        waves: how often the blocks fill the device; None if none fits.
        flop_per_byte: operations of a tile per byte of A and B that it reads.
        predicted_us: predicted time in microseconds; None if no block fits.
    """

    resources: Resources
    source: Literal["recorded", "estimated"]
    occupancy: Occupancy
    tile: tuple[int, int]
    blocks: int
    waves: float | None
    flop_per_byte: float
    predicted_us: float | None


@dataclass(frozen=True)
class Explanation:
    """A configuration of a problem on a device: its results, occupancy and times.

    Attributes:
        config: the configuration.
        rejection: why it cannot run, else the first reason why the search leaves it out; empty if
            there is none.
        results: each rule; none if a parameter is missing or has a value of no kernel.
        fit: how it lies on the device; None if it is rejected by a rule that is not about speed.
        measured_us: its recorded hot time in microseconds; None if it is not recorded.
    """

    config: Config
    rejection: str
    results: tuple[RuleResult, ...]
    fit: Fit | None
    measured_us: float | None


def least_us(problem: Problem, device: Device, objective: Objective = HOT) -> tuple[float, str]:
    """The least time that the roofline allows, in microseconds, and what sets it.

    Hot runs follow one another, so L2 may hold a part of the matrices.
    """
    seconds = objective.least_seconds(problem, device)
    compute = problem.flops / device.peak(problem.compute)
    return seconds * 1e6, "the peak" if compute >= seconds else "the memory's bandwidth"


def explain(config: Config, answer: Answer) -> Explanation:
    """Explains a configuration of the problem and device of an answer.

    Args:
        config: the configuration, legal or not.
        answer: the answer to a look-up, whose record may hold the configuration.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
    """
    own = answer.record if answer.record and answer.how == "exact" else None
    entries = own.entries if own else ()
    entry = next((entry for entry in entries if entry.config == config), None)
    measured_us = entry.measurement.time_us if entry else None
    if config.family == cublaslt.NAME:
        return Explanation(config, f"its blocks are {OWN}", (), None, measured_us)
    rules = rules_of(config.family, answer.problem, answer.device)
    fault = rules.domain_fault(config)
    if fault is not None:
        return Explanation(config, str(fault), (), None, None)
    results = _results(config, answer, rules, own)
    faults = {result.finding: f"{result.rule}: {result.detail}" for result in results[::-1]}
    if "broken" in faults:
        return Explanation(config, faults["broken"], results, None, None)
    rejection = faults.get("slow", "")
    fit = _fit(config, answer, entry.resources if entry else None)
    return Explanation(config, rejection, results, fit, measured_us)


def completed(text: str, answer: Answer) -> tuple[Config, Mapping[str, Value]]:
    """The configuration that a text names, and the values of the parameters that it leaves open.

    In the winner's family these are the winner's values; in another family they come from the
    configuration that the cost model expects to be the fastest.

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
    legal = space.feasible(problem, device, stated.family).configs
    agreeing = [config for config in legal if set(stated.params) <= set(config.params)]
    ranked = cost.rank(space.spread(agreeing, SAMPLE), problem, device)
    return ranked[0][1].values if ranked else None


def _results(
    config: Config, answer: Answer, rules: FamilyRules, record: Record | None
) -> tuple[RuleResult, ...]:
    # The rule does not know the vendor's error, even if it is recorded.
    recorded = [record] if record else []
    accuracy = accuracy_filter(answer.problem, answer.device, recorded, verified=True)
    values = config.values
    results: list[RuleResult] = []
    for rule, kept in zip(rules.rules, rules.results, strict=True):
        detail = kept.of(values)
        if rule.reason == ACCURACY and detail is None:
            detail = accuracy.fault(config)
        finding: Finding = "holds" if detail is None else "slow" if rule.for_speed else "broken"
        read = {name: values[name] for name in rule.needs}
        if rule.reason == ACCURACY and (error := accuracy.error(config)) is not None:
            read |= {"error": f"{error:.2g}", "limit": f"{accuracy.limit.error:.2g}"}
        results.append(RuleResult(rule.reason, finding, read, detail or ""))
        if finding == "broken":
            break
    rest = rules.rules[len(results) :]
    return (*results, *(RuleResult(rule.reason, "not reached", {}) for rule in rest))


def _fit(config: Config, answer: Answer, recorded: Resources | None) -> Fit:
    problem, device = answer.problem, answer.device
    family = registry.serving(config.family, problem)
    resources = recorded or family.estimate(config, problem, device)
    work = family.work(config, problem)
    resident = resources.occupancy(device, work.cluster)
    predicted = cost.predict(config, problem, device, resources)
    room = resident.blocks_per_sm * (device.sms - resident.idle_sms)
    rows, columns = work.tile
    return Fit(
        resources=resources,
        source="recorded" if recorded else "estimated",
        occupancy=resident,
        tile=work.tile,
        blocks=work.blocks,
        waves=work.blocks / room if room else None,
        flop_per_byte=intensity(rows, columns, element_bytes=problem.element_bytes),
        predicted_us=predicted if math.isfinite(predicted) else None,
    )


_STYLES = {"holds": "green", "slow": "yellow", "broken": "bold red", "not reached": "dim"}


def render(
    answer: Answer,
    winner: Explanation,
    variant: Explanation | None = None,
    added: Mapping[str, Value] | None = None,
    *,
    rules: bool = False,
) -> RenderableType:
    """The winner and why it won; before it the result on another configuration, and its fit.

    Args:
        answer: the answer to a look-up of the problem.
        winner: the explanation of its configuration.
        variant: the explanation of another configuration.
        added: the parameters of that one that the user left open.
        rules: whether to list every rule, of the other configuration if there is one.
    """
    lines: list[RenderableType] = [Text(f"{answer.problem} on {answer.device.name}", style="bold")]
    if variant is not None:
        lines.append(ConfigText(f"asked about: {variant.config}"))
        if added:
            lines.append(Text(f"  left open, so taken as: {_pairs(added)}", style="dim"))
        lines += [Text(f"  {line}") for line in compared(answer, winner, variant)]
        lines.append(Text())
    lines.append(ConfigText(f"winner, {answer.evidence}: {winner.config}"))
    lines += [Text(f"  {line}") for line in why(answer, winner)]
    listed = [Text(), rule_table(variant or winner)] if rules else []
    return Group(*lines, *listed)


def to_json(
    answer: Answer, winner: Explanation, variant: Explanation | None = None
) -> dict[str, object]:
    """The explanations in full; `why` and `compared` are the sentences of `render`."""
    least, by = least_us(answer.problem, answer.device, answer.objective)
    return {
        "problem": str(answer.problem),
        "device": answer.device.name,
        "how": answer.how,
        "evidence": answer.evidence,
        "time_us": answer.time_us,
        "least_us": least,
        "least_set_by": by,
        "why": why(answer, winner),
        "winner": _encoded(winner),
        "compared": compared(answer, winner, variant) if variant else [],
        "config": _encoded(variant) if variant else None,
    }


def why(answer: Answer, winner: Explanation) -> list[str]:
    """Sentences that say why the winner is the answer."""
    own = answer.record if answer.how == "exact" else None
    lines = [why_it_won(own.entries, answer.entry) if own and answer.entry else answer.note]
    least, by = least_us(answer.problem, answer.device, answer.objective)
    if answer.time_us:
        lines.append(
            f"{us(answer.time_us)}, {least / answer.time_us:.1%} of the roofline: {by} of "
            f"{precision(answer.problem.compute)} allows {us(least)}"
        )
    vendor_us = us_of(own.baseline, answer.objective) if own else None
    if vendor_us and answer.time_us:
        name = vendor(answer.problem.compute)
        lines.append(f"{name} takes {us(vendor_us)}, {vendor_us / answer.time_us:.2f}x")
    return lines + (_placed(answer, winner.fit) if winner.fit else [])


def compared(answer: Answer, winner: Explanation, variant: Explanation) -> list[str]:
    """Sentences about a configuration, beside the winner."""
    recorded = []
    if variant.measured_us is not None and answer.time_us:
        slower = variant.measured_us / answer.time_us
        recorded = [f"recorded: {us(variant.measured_us)}, {slower:.3f}x the winner's time"]
    if variant.fit is None:
        return recorded or [f"rejected: {variant.rejection}"]
    lines = [f"left out of the search: {variant.rejection}"] if variant.rejection else []
    lines += recorded
    ours = winner.fit.predicted_us if winner.fit else None
    if variant.fit.predicted_us is None:
        lines.append("no block fits an SM")
    else:
        beside = f", and {us(ours)} for the winner" if ours else ""
        lines.append(f"the cost model predicts {us(variant.fit.predicted_us)}{beside}")
    differing = _differing(variant.config, winner.config)
    lines += [f"differs in {differing}"] if differing else ["it is the winner"]
    return lines + _placed(answer, variant.fit)


def rule_table(explanation: Explanation) -> RenderableType:
    """A row for each rule: what it finds, and the numbers it reads or what is wrong with them."""
    if not explanation.results:
        return Text()
    table = FittedTable()
    table.add("rule", "finding", kind="text")
    table.add("numbers", kind="prose", worth=0.5)
    for result in explanation.results:
        table.add_row(
            Text(result.rule),
            Text(result.finding, style=_STYLES[result.finding]),
            Text(result.detail or _pairs(result.values)),
        )
    return table


def _placed(answer: Answer, fit: Fit) -> list[str]:
    demand, resident = fit.resources, fit.occupancy
    limits = ", ".join(f"{blocks} by {name}" for name, blocks in resident.limits.items())
    rows, columns = fit.tile
    blocks = "1 block" if resident.blocks_per_sm == 1 else f"{resident.blocks_per_sm} blocks"
    lines = [
        f"a block: {demand.threads} threads, {demand.registers} registers a thread ({fit.source}), "
        f"{demand.shared:,} bytes of shared memory",
        f"occupancy {resident.occupancy:.1%}: {blocks} an SM, "
        f"bound by {resident.limiter} ({limits})",
    ]
    if fit.waves is not None:
        empty = 1 - fit.waves / math.ceil(fit.waves)
        lines.append(
            f"{fit.blocks:,} blocks of {rows} x {columns} fill the device {fit.waves:.2f} times; "
            f"{empty:.0%} of the block slots idle"
        )
    bound = attainable(answer.device, fit.flop_per_byte, answer.problem.compute)
    share = bound / answer.device.peak(answer.problem.compute)
    lines.append(
        f"its tile does {fit.flop_per_byte:.3g} FLOP per byte; device memory alone would feed "
        f"{share:.0%} of the peak, L2 serves the rest"
        if share < 1
        else f"its tile does {fit.flop_per_byte:.3g} FLOP per byte, enough for the peak"
    )
    return lines


def _encoded(explanation: Explanation) -> dict[str, object]:
    fit = explanation.fit
    return {
        "config": str(explanation.config),
        "rejection": explanation.rejection,
        "rules": [asdict(result) for result in explanation.results],
        "fit": {**asdict(fit), "limiter": fit.occupancy.limiter} if fit else None,
        "measured_us": explanation.measured_us,
    }


def _differing(config: Config, winner: Config) -> str:
    if config.family != winner.family:
        return f"the family: {config.family}, not {winner.family}"
    values = winner.values
    pairs = [
        f"{name}={value} (not {values.get(name)})"
        for name, value in config.params
        if values.get(name) != value
    ]
    return ", ".join(pairs)


def _pairs(values: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def why_it_won(entries: Sequence[Entry], best: Entry) -> str:
    """Why `best` is the winner among a record's entries, in one sentence."""
    if len(entries) == 1:
        return "It is the only configuration of the record."
    fastest = min(entries, key=lambda entry: entry.measurement.time_us)
    rivals = [
        entry for entry in entries if entry != best and tied(entry.measurement, fastest.measurement)
    ]
    if not rivals:
        second = min(entry.measurement.time_us for entry in entries if entry != best)
        lead = second / best.measurement.time_us - 1
        return (
            f"It is {lead:.2%} faster than the next of {len(entries)}, "
            f"more than the {TIE:.1%} of a tie."
        )
    times = [entry.measurement.time_us for entry in (best, *rivals)]
    within = max(times) / min(times) - 1
    return (
        f"Tied with {len(rivals)} within {within:.2%}, and up to {TIE:.1%} is a tie; "
        f"it {_advantage(best, rivals)}."
    )


def _advantage(best: Entry, rivals: Sequence[Entry]) -> str:
    """The reason why an entry won over tied ones, in the order of `estimates.winner`."""
    if not best.library:
        rivals = [entry for entry in rivals if not entry.library]
    if not rivals:
        return "runs with every version of cuBLASLt"
    registers = _block_registers(best)
    least = min(map(_block_registers, rivals))
    if registers < least:
        return f"takes the fewest registers ({registers:,} a block, the next {least:,})"
    shared = [entry.resources.shared for entry in rivals if _block_registers(entry) == least]
    if best.resources.shared < min(shared):
        return (
            f"takes the least shared memory ({best.resources.shared:,} bytes a block, the next "
            f"{min(shared):,}) with as few registers"
        )
    return "takes no more than any of them, and comes first in the order of their texts"


def _block_registers(entry: Entry) -> int:
    return entry.resources.registers * entry.resources.threads
