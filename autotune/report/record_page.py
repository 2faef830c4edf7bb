"""The page of one record."""

from __future__ import annotations

from collections.abc import Iterator

from autotune.report import parts
from autotune.report.analysis.headline import Headline
from autotune.report.analysis.whole import Analysis
from autotune.report.figures.base import Figure
from autotune.report.figures.leaders import leader_figure
from autotune.report.figures.parameters import cost_figure, heat_figure
from autotune.report.figures.residency import curve_figure, map_figure
from autotune.report.figures.roofline import roofline_figure
from autotune.report.figures.search import search_figure
from autotune.report.page import (
    Section,
    count,
    document,
    escape,
    percent,
    ratio,
    time_us,
)
from autotune.report.page.html import asset
from autotune.version import __version__

_EVIDENCE = {
    "measured": ("good", "measured", "timed on the device, after verification"),
    "replayed": ("warn", "replayed", "from a recording of the device"),
    "predicted": ("bad", "predicted", "by the cost model; nothing ran"),
}


def record_page(analysis: Analysis) -> str:
    """The text of the page.

    Raises:
        MissingError: if plotly is not installed or is too old.
    """
    top = analysis.headline
    figures, labels = parts.shared_labels(record_figures(analysis))
    trials = {
        "columns": [
            {"name": column.name, "kind": column.kind} for column in analysis.trials.columns
        ],
        "rows": analysis.trials.rows,
        "caption": "All trials, in the order of the search",
        "file": "trials.csv",
    }
    tables = {"trials": trials} if analysis.steps else {}
    return document(
        f"{top.title} on {top.device}",
        tuple(_sections(analysis)),
        head=_head(analysis),
        data={"figures": figures, "labels": labels, "tables": tables},
        script=asset("report.js"),
        footer=f"Made by autotune {escape(__version__)}. Recorded {escape(top.date)}. This file "
        "loads nothing from elsewhere.",
    )


def record_figures(analysis: Analysis) -> dict[str, Figure]:
    """The pictures of a record by name: those that it has data for."""
    top = analysis.headline
    vendor_us, vendor = top.vendor_us, top.vendor
    figures: dict[str, Figure] = {}
    if analysis.steps:
        figures["search"] = search_figure(analysis.steps, vendor_us, vendor)
    if analysis.roofline is not None:
        figures["roofline"] = roofline_figure(analysis.roofline)
    if analysis.costs:
        figures["parameters"] = cost_figure(analysis.costs)
    if analysis.heat is not None:
        figures["heat"] = heat_figure(analysis.heat)
    if analysis.residency is not None:
        for curve in analysis.residency.curves:
            figures[f"occupancy-{curve.resource}"] = curve_figure(curve)
        figures["occupancy-map"] = map_figure(analysis.residency)
    figures["leaders"] = leader_figure(analysis.leaders, vendor_us, vendor)
    return figures


def _head(analysis: Analysis) -> str:
    top = analysis.headline
    kind, evidence, meaning = _EVIDENCE[top.evidence]
    badge = f'<span class="badge {kind}">{evidence}</span>'
    aged = f", {escape(top.age)}" if top.age else ""
    states = [f"Stale: {top.stale}."] if top.stale else []
    if top.interrupted:
        states.append("The search was interrupted, so this is not its final result.")
    return (
        f"<p>{badge} {meaning}{aged}.</p>"
        + "".join(parts.paragraph(state, "warn") for state in states)
        + (parts.paragraph(f"Measured with {top.changed}.") if top.changed != top.stale else "")
        + parts.facts(_facts(top))
        + f"<p>{escape(top.why)}</p><p><code>{parts.breakable(top.config)}</code></p>"
        + (
            parts.paragraph(f"{analysis.note[0].upper()}{analysis.note[1:]}.", "warn")
            if analysis.note
            else ""
        )
    )


def _facts(top: Headline) -> Iterator[tuple[str, str, str]]:
    spread = f"± {time_us(top.spread_us)}, {count(top.samples)} samples" if top.samples else ""
    yield "time, hot", time_us(top.time_us), spread
    if top.cold_us is not None:
        yield "time, cold", time_us(top.cold_us), "L2 flushed"
    if top.tflops is not None:
        yield "TFLOP/s", f"{top.tflops:,.1f}", f"{percent(top.peak_share)} of the peak"
        yield "of the roofline, hot", percent(top.roofline_share), "what L2 holds is not moved"
        if top.cold_roofline_share is not None:
            share = percent(top.cold_roofline_share)
            yield "of the roofline, cold", share, "every matrix moved once"
    if top.over_hot is not None:
        yield f"over {top.vendor}, hot", ratio(top.over_hot), f"it takes {time_us(top.vendor_us)}"
    if top.over_cold is not None:
        yield f"over {top.vendor}, cold", ratio(top.over_cold), "L2 flushed"
    yield "occupancy", percent(top.occupancy), f"limited by {top.limiter}"


def _sections(analysis: Analysis) -> Iterator[Section]:
    yield _search(analysis)
    if analysis.roofline is not None:
        yield _roofline()
    if analysis.costs:
        yield _parameters(analysis)
    if analysis.residency is not None:
        yield _occupancy(analysis)
    yield _leaders(analysis)
    if analysis.steps:
        yield Section("trials", "All trials", '<div id="table-trials"></div>')
    yield _rejections(analysis)
    yield Section("repeat", "Repeat it", parts.commands(analysis.headline.commands))


def _search(analysis: Analysis) -> Section:
    if not analysis.steps:
        return Section("search", "The search", parts.paragraph(analysis.stop))
    failed = sum(analysis.failures.values())
    stages = ", ".join(f"{stage} {count(n)}" for stage, n in analysis.failures.items())
    number = len(analysis.steps)
    trials = "1 trial" if number == 1 else f"{count(number)} trials"
    caption = f"{trials}; {count(failed)} failed" + (f" ({escape(stages)})." if failed else ".")
    description = (
        f"Time of each of {len(analysis.steps)} trials in the order of the search, and the best "
        "so far. The table of all trials has the numbers."
    )
    content = parts.plot("search", description, caption) + parts.paragraph(analysis.stop)
    return Section("search", "The search", content)


def _roofline() -> Section:
    caption = (
        "A trial lies at the bytes that its blocks load, so L2's roof bounds it; L2 and shared "
        "tiles lift it above the roof of device memory. The dotted line is the least traffic: "
        "every matrix moved once. Diamonds are the textbook's kernels at their bounds."
    )
    description = "TFLOP/s of the trials over FLOP per byte, below the roofs of the device."
    return Section("roofline", "Roofline", parts.plot("roofline", description, caption, "tall"))


def _parameters(analysis: Analysis) -> Section:
    top = analysis.costs[0]
    first = (
        f"{top.name} matters most: between its best and its worst value lie "
        f"{percent(top.range)}. A value counts with the best time that any trial had with it."
    )
    names = [cost.name for cost in analysis.costs]
    description = f"Loss with each value of the parameters {', '.join(names)}."
    content = parts.paragraph(first) + parts.plot("parameters", description, "", "free")
    if analysis.heat is not None:
        content += _heat(analysis)
    return Section("parameters", "What each parameter costs", content)


def _heat(analysis: Analysis) -> str:
    family, heat = analysis.headline.family, analysis.heat
    choices = "".join(
        f'<label>{label} <select id="heat-{axis}">{_options(analysis.varied, chosen)}</select>'
        "</label>"
        for label, axis, chosen in (
            ("across", "x", heat.x if heat else ""),
            ("down", "y", heat.y if heat else ""),
        )
    )
    return (
        f'<h3>Two parameters at a time</h3><div class="controls">{choices}</div>'
        f'<figure><div class="plot" id="heat" data-figure="heat" data-family="{escape(family)}" '
        'role="group" aria-label="Best time with each pair of values of two parameters"></div>'
        "<figcaption>The best time in µs with each pair of values; empty cells were not tried."
        "</figcaption></figure>"
    )


def _options(names: tuple[str, ...], chosen: str) -> str:
    return "".join(
        f"<option{' selected' if name == chosen else ''}>{escape(name)}</option>" for name in names
    )


def _occupancy(analysis: Analysis) -> Section:
    residency = analysis.residency
    if residency is None:
        return Section("occupancy", "Occupancy", "")
    block = residency.resources
    sentence = (
        f"A block of the winner has {block.threads} threads of {block.registers} registers and "
        f"{block.shared:,} bytes of shared memory: {percent(residency.occupancy)} of the warps "
        f"that an SM can hold, limited by {analysis.headline.limiter}. Each curve varies one of "
        "the three."
    )
    curves = "".join(
        parts.plot(
            f"occupancy-{curve.resource}",
            f"Occupancy over {curve.resource}; the winner has {curve.winner}.",
            "",
            "short",
        )
        for curve in residency.curves
    )
    caption = (
        f"Occupancy of blocks of {block.threads} threads. Hollow trials have other numbers of "
        "threads, so another occupancy than the map."
    )
    description = "Occupancy by registers a thread and shared memory a block, with the trials."
    content = parts.paragraph(sentence) + f'<div class="columns">{curves}</div>'
    return Section(
        "occupancy",
        "Occupancy",
        content + parts.plot("occupancy-map", description, caption, "tall"),
    )


def _leaders(analysis: Analysis) -> Section:
    rows = [
        (
            number,
            time_us(row.time_us),
            f"± {time_us(row.spread_us)}",
            percent(row.loss, 2),
            time_us(row.cold_us),
            percent(row.occupancy, 0),
            row.limiter,
            row.registers,
            count(row.shared),
            row.differs,
        )
        for number, row in enumerate(analysis.leaders, start=1)
    ]
    names = ("rank", "time", "spread", "slower", "cold", "occupancy", "limiter", "registers")
    headings: list[tuple[str, parts.Kind]] = [
        (name, "word" if name == "limiter" else "number") for name in names
    ]
    headings += [("shared bytes", "number"), ("differs from the winner in", "prose")]
    caption = "The record's configurations, timed interleaved in the final round"
    description = f"Times of the {len(rows)} fastest configurations with their spreads."
    content = parts.plot("leaders", description, "", "short" if len(rows) < 6 else "")
    return Section("leaders", "Leaders", content + parts.table(headings, rows, caption))


def _rejections(analysis: Analysis) -> Section:
    rows = [
        (row.when, row.family, row.reason, count(row.count), row.sentence, row.example)
        for row in analysis.rejections
    ]
    if not rows:
        return Section("rejections", "Not timed", parts.paragraph("No configuration was rejected."))
    headings: list[tuple[str, parts.Kind]] = [
        ("when", "word"),
        ("family", "word"),
        ("reason", "word"),
        ("configurations", "number"),
        ("meaning", "prose"),
        ("example", "prose"),
    ]
    caption = "Configurations that were not timed, by the first reason"
    return Section("rejections", "Not timed", parts.table(headings, rows, caption))
