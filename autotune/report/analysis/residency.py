"""Where the winner stands in the occupancy of its device: three curves and a map."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from autotune.device import Device
from autotune.errors import DeviceError
from autotune.families.plan import Resources
from autotune.occupancy import Occupancy
from autotune.problem.integers import ceil_div
from autotune.report.analysis.subject import Subject

REGISTERS = tuple(range(8, 256, 8))
SHARED_STEPS = 48
"""Rows of the map, and about as many steps of the curve of shared memory."""
KIB = 1024


@dataclass(frozen=True)
class OccupancyCurve:
    """The occupancy over one resource of a block, with the others those of the winner.

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
        registers: columns of the map.
        shared: rows of the map, in bytes.
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
    shared = shared_steps(device)
    try:
        curves = tuple(
            occupancy_curve(device, block, name, values)
            for name, values in (
                ("threads", range(32, device.threads_per_block + 1, 32)),
                ("registers", range(1, 256)),
                ("shared", shared),
            )
        )
        shares = tuple(
            tuple(
                _resident(device, replace(block, registers=count, shared=size)).occupancy
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


def occupancy_curve(
    device: Device, resources: Resources, name: str, values: Iterable[int]
) -> OccupancyCurve:
    """The occupancy over the values of one resource, with its winner's value among them.

    Raises:
        DeviceError: if the rules of the device are unknown.
    """
    winner = int(getattr(resources, name))
    steps = tuple(sorted({*values, winner}))
    resident = [_resident(device, _with(resources, name, value)) for value in steps]
    return OccupancyCurve(
        name,
        steps,
        tuple(row.occupancy for row in resident),
        tuple(row.blocks_per_sm for row in resident),
        tuple(row.limiter for row in resident),
        winner,
    )


def shared_steps(device: Device) -> tuple[int, ...]:
    """Bytes of shared memory from 0 to the most a block can have, in whole KiB."""
    largest = device.shared_per_block_optin // KIB
    step = max(1, ceil_div(largest, SHARED_STEPS))
    return tuple(KIB * size for size in (*range(0, largest, step), largest))


def _with(resources: Resources, name: str, value: int) -> Resources:
    changes = {"threads": resources.threads, "registers": resources.registers}
    changes |= {"shared": resources.shared, name: value}
    return replace(
        resources,
        threads=changes["threads"],
        registers=changes["registers"],
        shared=changes["shared"],
    )


def _resident(device: Device, resources: Resources) -> Occupancy:
    return resources.occupancy(device)
