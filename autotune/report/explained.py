"""The explanation of a winner and of another configuration, as text and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

from autotune.families.config import Config, Value
from autotune.lookup.answer import Answer
from autotune.report import precision, vendor
from autotune.report.analysis.headline import why_it_won
from autotune.report.explanation import Explanation, Fit, least_us
from autotune.roofline import attainable

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"holds": "green", "slow": "yellow", "broken": "bold red", "not reached": "dim"}


def render(
    answer: Answer,
    winner: Explanation,
    variant: Explanation | None = None,
    added: Mapping[str, Value] | None = None,
    *,
    rules: bool = False,
) -> RenderableType:
    """The winner and why it won; before it the verdict on another configuration, and its fit.

    Args:
        answer: the answer to a look-up of the problem.
        winner: the explanation of its configuration.
        variant: the explanation of another configuration.
        added: the parameters of that one that the user left open.
        rules: whether to list every rule, of the other configuration if there is one.
    """
    from rich.console import Group
    from rich.text import Text

    from autotune.report.tables import ConfigText

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
    lines = [_margin(answer)]
    least, by = least_us(answer.problem, answer.device, answer.objective)
    if answer.time_us:
        lines.append(
            f"{_us(answer.time_us)}, {least / answer.time_us:.1%} of the roofline: {by} of "
            f"{precision(answer.problem.compute)} allows {_us(least)}"
        )
    own = answer.record if answer.how == "exact" else None
    baseline = own.baseline.estimate(answer.objective) if own and own.baseline else None
    if baseline and answer.time_us:
        name = vendor(answer.problem.compute)
        lines.append(
            f"{name} takes {_us(baseline.time_us)}, {baseline.time_us / answer.time_us:.2f}x"
        )
    return lines + (_placed(answer, winner.fit) if winner.fit else [])


def compared(answer: Answer, winner: Explanation, variant: Explanation) -> list[str]:
    """Sentences about a configuration, beside the winner."""
    if variant.fit is None:
        return [f"rejected: {variant.rejection}"]
    lines = [f"left out of the search: {variant.rejection}"] if variant.rejection else []
    if variant.measured_us is not None and answer.time_us:
        slower = variant.measured_us / answer.time_us
        lines.append(f"recorded: {_us(variant.measured_us)}, {slower:.3f}x the winner's time")
    ours = winner.fit.predicted_us if winner.fit else None
    if variant.fit.predicted_us is None:
        lines.append("no block fits an SM")
    else:
        beside = f", and {_us(ours)} for the winner" if ours else ""
        lines.append(f"the cost model predicts {_us(variant.fit.predicted_us)}{beside}")
    differing = _differing(variant.config, winner.config)
    lines += [f"differs in {differing}"] if differing else ["it is the winner"]
    return lines + _placed(answer, variant.fit)


def rule_table(explanation: Explanation) -> RenderableType:
    """A row for each rule: what it finds, and the numbers it reads or what is wrong with them."""
    from rich.text import Text

    from autotune.report.tables import FittedTable

    if not explanation.verdicts:
        return Text()
    table = FittedTable()
    for header in ("rule", "finding"):
        table.add(header, "text")
    table.add("numbers", "prose", worth=0.5)
    for verdict in explanation.verdicts:
        table.add_row(
            Text(verdict.rule),
            Text(verdict.finding, style=_STYLES[verdict.finding]),
            Text(verdict.detail or _pairs(verdict.values)),
        )
    return table


def _margin(answer: Answer) -> str:
    """How the winner stands among the recorded configurations, or whose choice it is."""
    if answer.record is None or answer.how != "exact":
        return answer.note
    return why_it_won(answer.record.entries, answer.entry) if answer.entry else answer.note


def _placed(answer: Answer, fit: Fit) -> list[str]:
    """How the blocks lie on the device."""
    demand, resident = fit.resources, fit.occupancy
    limits = ", ".join(f"{blocks} by {name}" for name, blocks in resident.limits.items())
    rows, columns = fit.tile
    lines = [
        f"a block: {demand.threads} threads, {demand.registers} registers a thread ({fit.source}), "
        f"{demand.shared:,} bytes of shared memory",
        f"occupancy {resident.occupancy:.1%}: {_counted(resident.blocks_per_sm)} an SM, bound by "
        f"{resident.limiter} ({limits})",
    ]
    if fit.waves is not None:
        empty = 1 - fit.waves / math.ceil(fit.waves)
        lines.append(
            f"{fit.blocks:,} blocks of {rows} x {columns} fill the device {fit.waves:.2f} times; "
            f"{empty:.0%} of the places stay empty"
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
        "rules": [asdict(verdict) for verdict in explanation.verdicts],
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


def _counted(blocks: int) -> str:
    return "1 block" if blocks == 1 else f"{blocks} blocks"


def _pairs(values: Mapping[str, Value]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def _us(time_us: float) -> str:
    return f"{time_us:.1f} us" if time_us >= 100 else f"{time_us:.2f} us"
