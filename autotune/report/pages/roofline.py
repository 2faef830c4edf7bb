"""The roofline of a device, with the trials of a problem and the textbook's kernels on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.model.cost import fitted
from autotune.problem import Problem
from autotune.report.pages.figures import (
    BOUND,
    COLOURS,
    SCALE,
    VENDOR,
    WINNER,
    Figure,
    axis,
    config_text,
    figure,
    scatter,
    text,
)
from autotune.report.pages.page import Section, plot
from autotune.report.trials import Subject
from autotune.roofline import bandwidth_bound, intensity

TEXTBOOK = (("naive", 1), ("TILE_WIDTH 8", 8), ("TILE_WIDTH 16", 16), ("TILE_WIDTH 32", 32))
"""Kernels of the textbook, with the side of the square of C that uses a loaded value."""


@dataclass(frozen=True)
class Roofs:
    """The bounds of a device for a precision: bandwidths in bytes a second, peak in FLOP/s.

    L2's bandwidth is that of the cost model, fitted to measurements of an H100.
    """

    dram: float
    l2: float
    peak: float


@dataclass(frozen=True)
class RooflinePoint:
    """A kernel on the roofline.

    Attributes:
        name: the configuration's text, or the name of a kernel of the textbook.
        flop_per_byte: operations for each byte that its blocks load.
        flops: FLOP/s, measured, or for a kernel of the textbook its bound.
        occupancy: resident warps as a share of the SM's; None if unknown.
    """

    name: str
    flop_per_byte: float
    flops: float
    occupancy: float | None = None


@dataclass(frozen=True)
class Roofline:
    """A roofline with its points.

    Attributes:
        roofs: the bounds.
        textbook: kernels of the textbook, at their bounds by device memory.
        trials: the trials with a time.
        winner: the record's best.
        once: operations for each byte if every matrix moved once.
    """

    roofs: Roofs
    textbook: tuple[RooflinePoint, ...]
    trials: tuple[RooflinePoint, ...]
    winner: RooflinePoint | None
    once: float


def roofline(subject: Subject) -> Roofline | None:
    """The roofline of a record's problem; None for a user kernel, whose work is unknown."""
    problem, device = subject.problem, subject.record.device
    if problem is None:
        return None
    dram = device.memory_bandwidth
    bounds = Roofs(dram, dram * fitted().l2, device.peak(problem.compute))
    textbook = (
        (name, intensity(side, side, element_bytes=problem.element_bytes))
        for name, side in TEXTBOOK
    )
    trials = (row.trial for row in subject.trials if math.isfinite(row.trial.time_us))
    points = (_point(trial.config, problem, trial.time_us, trial.occupancy) for trial in trials)
    best = subject.record.best
    return Roofline(
        bounds,
        tuple(
            RooflinePoint(name, value, min(bounds.peak, bandwidth_bound(dram, value)))
            for name, value in textbook
        ),
        tuple(point for point in points if point is not None),
        _point(best.config, problem, best.measurement.time_us, best.occupancy),
        problem.flops / problem.bytes,
    )


def _point(
    config: Config, problem: Problem, time_us: float, occupancy: float | None
) -> RooflinePoint | None:
    """The point of a trial; None if today's family does not know its parameters."""
    try:
        work = registry.serving(config.family, problem).work(config, problem)
    except AutotuneError:
        return None
    loaded = work.blocks * work.iterations * work.bytes
    if not loaded:
        return None
    return RooflinePoint(str(config), problem.flops / loaded, problem.speed(time_us), occupancy)


TERA = 1e12


def roofline_figure(roofline: Roofline) -> Figure:
    """The roofs of device memory and L2, the textbook's kernels, the trials by occupancy, and the
    winner; TFLOP/s over FLOP per byte that the blocks load."""
    roofs, winner = roofline.roofs, [roofline.winner] if roofline.winner else []
    points = [*roofline.trials, *roofline.textbook, *winner]
    values = [point.flop_per_byte for point in points] + [roofline.once]
    low, high = min(values) / 1.6, max(*values, roofs.peak / roofs.dram) * 1.6
    heights = min(point.flops for point in points), min(roofs.peak, roofs.dram * roofline.once)
    data = [
        _roof("device memory", roofs.dram, roofs.peak, low, high, COLOURS[0]),
        _roof("L2 (fitted)", roofs.l2, roofs.peak, low, high, COLOURS[2]),
        _textbook(roofline.textbook),
        _trials(roofline.trials),
        scatter(
            "each matrix moved once",
            [roofline.once] * 2,
            (height / TERA for height in heights),
            "each matrix moved once: %{x:.4g} FLOP/B<extra></extra>",
            mode="lines",
            line={"color": VENDOR, "dash": "dot"},
        ),
        *(_winner(point) for point in winner),
    ]
    decades = {"dtick": 1, "minor": {"ticks": "outside", "ticklen": 3}}
    x, y = (
        axis(title, log=True) | decades for title in ("FLOP per byte that blocks load", "TFLOP/s")
    )
    return figure(data, x, y)


def _roof(
    name: str, bandwidth: float, peak: float, low: float, high: float, colour: str
) -> dict[str, Any]:
    ridge = peak / bandwidth
    xs = [low, ridge, high] if low < ridge < high else [low, high]
    return scatter(
        name,
        xs,
        (min(peak, bandwidth * value) / TERA for value in xs),
        f"{name}, {bandwidth / TERA:.3g} TB/s: %{{y:.4g}} TFLOP/s<extra></extra>",
        mode="lines",
        line={"color": colour, "width": 2},
    )


def _points(
    name: str, points: Sequence[RooflinePoint], hover: str, **settings: Any
) -> dict[str, Any]:
    x, y = [point.flop_per_byte for point in points], [point.flops / TERA for point in points]
    return scatter(name, x, y, f"{hover}<extra></extra>", **settings)


def _textbook(points: Sequence[RooflinePoint]) -> dict[str, Any]:
    return _points(
        "textbook kernels' bounds",
        points,
        "%{customdata}: at most %{y:.4g} TFLOP/s at %{x:.3g} FLOP/B",
        mode="markers+text",
        text=[text(point.name.removeprefix("TILE_WIDTH ")) for point in points],
        customdata=[text(point.name) for point in points],
        textposition="bottom right",
        marker={"symbol": "diamond-open", "size": 9, "color": BOUND},
    )


def _trials(points: Sequence[RooflinePoint]) -> dict[str, Any]:
    return _points(
        "trials",
        points,
        "%{y:.4g} TFLOP/s at %{x:.4g} FLOP/B, occupancy %{marker.color:.0%}<br>%{text}",
        text=[config_text(point.name) for point in points],
        marker={
            "size": 6,
            "opacity": 0.8,
            "color": [point.occupancy for point in points],
            "colorscale": SCALE,
            "cmin": 0,
            "cmax": max((point.occupancy or 0 for point in points), default=1) or 1,
            "line": {"width": 0.5, "color": COLOURS[5]},
            "showscale": True,
            "colorbar": {  # its title runs along it, to leave the picture its width
                "title": {"text": "occupancy", "side": "right"},
                "tickformat": ".0%",
                "thickness": 12,
            },
        },
    )


def _winner(point: RooflinePoint) -> dict[str, Any]:
    return _points(
        "winner",
        [point],
        "winner: %{y:.4g} TFLOP/s at %{x:.4g} FLOP/B<br>%{text}",
        text=[config_text(point.name)],
        marker={"symbol": "star", "size": 15, "color": WINNER, "line": {"width": 1}},
    )


def roofline_section() -> Section:
    """The picture of the roofline with its caption."""
    caption = (
        "A trial's place counts all bytes that its blocks load, from L2 or device memory. So L2's "
        "roof bounds it, and it may lie above the roof of device memory. The dotted line is the "
        "least traffic: every matrix moved once. Diamonds are the bounds of textbook kernels, "
        "named by TILE_WIDTH."
    )
    description = "TFLOP/s of the trials over FLOP per byte, below the roofs of the device."
    return Section("roofline", "Roofline", plot("roofline", description, caption, "tall"))
