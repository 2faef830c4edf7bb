"""Tables of swept kernels, several devices side by side: occupancy, and headroom for N blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import TYPE_CHECKING

from autotune.device import SmLimits
from autotune.occupancy import BlockDemand, Headroom, best_block_sizes, headroom
from autotune.report.occupancy import OccupancyRow, kernel_row

if TYPE_CHECKING:
    from autotune.report.tables import FittedTable

NAMES = {"threads": "threads", "registers": "regs", "shared": "shared\nbytes"}
"""The swept fields of `OccupancyRow` and `BlockDemand`, from the outermost, and their headings."""

_UNITS = {"threads": "threads", "registers": "registers", "shared": "bytes of shared memory"}


@dataclass(frozen=True)
class Sweep:
    """The occupancies of many kernels on several devices.

    Attributes:
        rows: the rows of each device by its label; all devices have the same kernels.
        best: the block sizes of the highest occupancy by label, if nothing but the block size is
            swept.
    """

    rows: Mapping[str, tuple[OccupancyRow, ...]]
    best: Mapping[str, tuple[int, ...]]

    @property
    def swept(self) -> tuple[str, ...]:
        """The fields that differ between the kernels."""
        first = next(iter(self.rows.values()))
        return tuple(name for name in NAMES if len({getattr(row, name) for row in first}) > 1)

    @property
    def first(self) -> BlockDemand:
        """The demand of a block of the first kernel."""
        row = next(iter(self.rows.values()))[0]
        amounts = row.threads, row.registers, row.shared
        return BlockDemand(*amounts, row.barriers, row.carve_out, row.cluster)

    @property
    def note(self) -> str:
        """The fields that are equal in all kernels, as text."""
        row = next(iter(self.rows.values()))[0]
        alike = [f"{getattr(row, n):,} {_UNITS[n]}" for n in NAMES if n not in self.swept]
        alike += [f"{row.barriers} barriers"] if row.barriers != 1 else []
        alike += [f"clusters of {row.cluster}"] if row.cluster > 1 else []
        alike += [f"carve-out {row.carve_out}%"] if row.carve_out is not None else []
        return ", ".join(alike)


def swept(
    devices: Mapping[str, SmLimits],
    base: BlockDemand,
    threads: Sequence[int],
    registers: Sequence[int],
    shared: Sequence[int],
) -> Sweep:
    """Every combination of the amounts on each device; `base` has the rest of a block's demand.

    Raises:
        UsageError: for impossible amounts.
    """
    demands = [
        BlockDemand(*amounts, base.barriers, base.carve_out, base.cluster)
        for amounts in product(threads, registers, shared)
    ]
    rows = {
        label: tuple(kernel_row(device, demand) for demand in demands)
        for label, device in devices.items()
    }
    alone = len(registers) == len(shared) == 1 < len(threads)
    best = {label: best_block_sizes(device, demands[0]) for label, device in devices.items()}
    return Sweep(rows, best if alone else {})


def render(sweep: Sweep) -> FittedTable:
    """A row for each kernel; neighbours that differ in their last amount alone and fare alike are
    one row with a range.

    One device has a column for each value, several have one column each, such as `8 (100%) warps`.
    """
    from autotune.report.tables import FittedTable

    swept_names = sweep.swept or tuple(NAMES)
    table = FittedTable()
    for name in swept_names:
        table.add(NAMES[name], worth=1)
    single = len(sweep.rows) == 1
    clusters = next(iter(sweep.rows.values()))[0].cluster > 1
    if single:
        extra = ("clusters", "idle\nSMs") if clusters else ()
        for header in ("blocks\nan SM", "occu-\npancy", *extra):
            table.add(header)
        table.add("limiter", "prose")
    else:
        for label in sweep.rows:
            table.add(f"{label}\nblocks an SM", "text")
    for amounts, rows in _merged(sweep, swept_names):
        cells = _cells(rows[0], clusters) if single else [_fare(row, clusters) for row in rows]
        table.add_row(*amounts, *cells)
    return table


def best_lines(sweep: Sweep) -> list[str]:
    """The best block sizes on each device, in a line each."""
    lines = []
    for label, sizes in sweep.best.items():
        share = max(row.occupancy for row in sweep.rows[label])
        text = ", ".join(map(str, sizes)) or "none runs"
        lines.append(f"best block size on {label}: {text} ({share:.0%})")
    return lines


def sweep_json(sweep: Sweep, devices: Mapping[str, SmLimits]) -> list[dict[str, object]]:
    """For each device its name, the rows of all kernels and the best block sizes, if swept."""
    return [
        {
            "device": devices[label].name,
            "rows": [asdict(row) for row in rows],
            "best_threads": list(sweep.best.get(label, ())),
        }
        for label, rows in sweep.rows.items()
    ]


def headrooms(
    devices: Mapping[str, SmLimits],
    base: BlockDemand,
    threads: Sequence[int],
    blocks: Sequence[int],
) -> dict[str, list[tuple[int, Headroom]]]:
    """The headroom of each block size for each number of blocks, by device; with the block size.

    Raises:
        UsageError: for impossible amounts.
    """
    return {
        label: [
            (size, headroom(device, BlockDemand(size, 0, 0, base.barriers, base.carve_out), count))
            for size, count in product(threads, blocks)
        ]
        for label, device in devices.items()
    }


def render_headrooms(rooms: Mapping[str, Sequence[tuple[int, Headroom]]]) -> FittedTable:
    """A row for each block size and number of blocks, with the most a block may take."""
    from autotune.report.tables import FittedTable

    table = FittedTable()
    for header in ("threads", "blocks\nan SM"):
        table.add(header, worth=1)
    for label in rooms if len(rooms) > 1 else [""]:
        heading = f"{label}\noccupancy, most registers,\nmost shared bytes".strip()
        table.add(heading, "text")
    for pairs in zip(*rooms.values(), strict=True):
        size, room = pairs[0]
        table.add_row(str(size), str(room.blocks), *(_room(each) for _, each in pairs))
    return table


def _merged(
    sweep: Sweep, names: Sequence[str]
) -> Iterator[tuple[list[str], tuple[OccupancyRow, ...]]]:
    """The amounts and the devices' rows of each kernel, runs of equal outcome as one."""
    *outer, inner = names
    pending: list[tuple[OccupancyRow, ...]] = []

    def merged() -> tuple[list[str], tuple[OccupancyRow, ...]]:
        first, last = pending[0][0], pending[-1][0]
        low, high = getattr(first, inner), getattr(last, inner)
        amounts = [f"{getattr(first, name):,}" for name in outer]
        return [*amounts, f"{low:,}" if low == high else f"{low:,}..{high:,}"], pending[0]

    for rows in zip(*sweep.rows.values(), strict=True):
        if pending and _outcome(pending[0], outer) != _outcome(rows, outer):
            yield merged()
            pending.clear()
        pending.append(rows)
    yield merged()


def _outcome(rows: tuple[OccupancyRow, ...], outer: Sequence[str]) -> tuple[object, ...]:
    """The values that two neighbouring kernels have to share to become one row."""
    fares = [(r.blocks_per_sm, r.occupancy, r.limiter, r.clusters, r.idle_sms) for r in rows]
    return (*fares, *(getattr(rows[0], name) for name in outer))


def _cells(row: OccupancyRow, clusters: bool) -> list[str]:
    extra = [str(row.clusters), str(row.idle_sms)] if clusters else []
    return [str(row.blocks_per_sm), f"{row.occupancy:.0%}", *extra, row.limiter]


def _fare(row: OccupancyRow, clusters: bool) -> str:
    extra = f", {row.clusters} clusters" if clusters else ""
    return f"{row.blocks_per_sm} ({row.occupancy:.0%}{extra}) {row.limiter}"


def _room(room: Headroom) -> str:
    if room.limiter:
        return f"impossible: {room.limiter}"
    return f"{room.occupancy:.0%}, {room.registers}, {room.shared:,}"
