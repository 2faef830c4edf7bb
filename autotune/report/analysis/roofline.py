"""The roofline of a device, with the trials of a problem and the textbook's kernels on it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune.candidates.cost import fitted
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.report.analysis.subject import Subject
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


def roofs(device: Device, compute: str) -> Roofs:
    """The bounds of a device for a precision."""
    dram = device.memory_bandwidth
    return Roofs(dram, dram * fitted().l2, device.peak(compute))


def roofline(subject: Subject) -> Roofline | None:
    """The roofline of a record's problem; None for a user kernel, whose work is unknown."""
    problem, device = subject.problem, subject.device
    if problem is None:
        return None
    bounds = roofs(device, problem.compute)
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
            RooflinePoint(name, value, min(bounds.peak, bandwidth_bound(bounds.dram, value)))
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
