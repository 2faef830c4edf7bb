"""Where the winner stands in the occupancy of its device: three curves and a map."""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.device import Device
from autotune.errors import DeviceError
from autotune.families.plan import Resources
from autotune.occupancy import LARGEST_REGISTERS, RESOURCES, BlockDemand, curve
from autotune.problem.integers import ceil_div
from autotune.report.analysis.subject import Subject

REGISTERS = (*range(8, 249, 8), LARGEST_REGISTERS)
"""Columns of the map: registers are allocated in units of 8 a thread."""
SHARED_STEPS = 48
"""Rows of the map, at most."""
KIB = 1024


@dataclass(frozen=True)
class OccupancyCurve:
    """The occupancy over one resource of a block, with the others those of the winner: the
    staircase that `occupancy.Curve` describes.

    Attributes:
        resource: `threads`, `registers` or `shared`, as in `Resources`.
        values: of the resource: threads a block, registers a thread, bytes a block.
        occupancy: for each value, a share (0..1).
        blocks: for each value, resident blocks an SM.
        limiters: for each value.
        winner: the winner's value.
    """

    resource: str
    values: tuple[int, ...]
    occupancy: tuple[float, ...]
    blocks: tuple[int, ...]
    limiters: tuple[str, ...]
    winner: int


@dataclass(frozen=True)
class MapPoint:
    """A trial on the map of registers by shared memory."""

    config: str
    registers: int
    shared: int
    threads: int
    occupancy: float | None
    time_us: float


@dataclass(frozen=True)
class Residency:
    """The occupancy around a winner.

    Attributes:
        resources: what the winner's block takes.
        occupancy: the winner's, a share (0..1).
        curves: over threads, registers and shared memory.
        registers: columns of the map, each the most registers of its column.
        shared: rows of the map, each the most bytes of its row.
        shares: the occupancy of each row and column, with the winner's threads.
        points: the trials whose resources are known.
    """

    resources: Resources
    occupancy: float
    curves: tuple[OccupancyCurve, ...]
    registers: tuple[int, ...]
    shared: tuple[int, ...]
    shares: tuple[tuple[float, ...], ...]
    points: tuple[MapPoint, ...]


def residency(subject: Subject) -> Residency | None:
    """The occupancy around the winner; None if the rules of its device are unknown."""
    device, best = subject.device, subject.record.best
    block = best.resources
    demand = BlockDemand(block.threads, block.registers, block.shared, block.barriers)
    shared = shared_steps(device)
    try:
        curves = tuple(occupancy_curve(device, demand, name) for name in RESOURCES)
        shares = tuple(
            tuple(
                replace(demand, registers=count, shared=size).on(device).occupancy
                for count in REGISTERS
            )
            for size in shared
        )
    except DeviceError:
        return None
    points = tuple(
        MapPoint(
            str(trial.config),
            trial.resources.registers,
            trial.resources.shared,
            trial.resources.threads,
            trial.occupancy,
            trial.time_us,
        )
        for row in subject.trials
        if (trial := row.trial).resources is not None and trial.entry is not None
    )
    return Residency(block, best.occupancy, curves, REGISTERS, shared, shares, points)


def occupancy_curve(device: Device, demand: BlockDemand, resource: str) -> OccupancyCurve:
    """The occupancy over one resource of the winner's block.

    Raises:
        DeviceError: if the rules of the device are unknown.
    """
    stairs = curve(device, demand, resource)
    return OccupancyCurve(
        resource,
        stairs.amounts,
        stairs.shares,
        tuple(row.blocks_per_sm for row in stairs.resident),
        tuple(row.limiter for row in stairs.resident),
        getattr(demand, resource),
    )


def shared_steps(device: Device) -> tuple[int, ...]:
    """Bytes of shared memory up to the most a block can have, in whole KiB."""
    largest = device.shared_per_block_optin // KIB
    step = max(1, ceil_div(largest, SHARED_STEPS))
    return tuple(KIB * size for size in (*range(step, largest, step), largest))
