"""The occupancy table: resident blocks of a kernel, and the roofline bound of its tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from autotune import roofline, settings
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure
from autotune.device import Device, SmLimits
from autotune.errors import AutotuneError, UsageError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.textbook import TILE_WIDTHS, TILED, shared_bytes
from autotune.occupancy import BlockDemand
from autotune.problem import Problem
from autotune.report import cell
from autotune.report.tables import FittedTable, Kind


@dataclass(frozen=True)
class OccupancyRow:
    """The occupancy of one kernel on one device.

    Attributes:
        threads: threads a block.
        registers: registers a thread.
        shared: shared memory a block in bytes.
        barriers: named barriers a block.
        carve_out: preferred share of the SM's shared memory in percent; None for the default.
        blocks_per_sm: resident blocks; 0 if the kernel cannot run.
        occupancy: resident warps as a share (0..1) of what the SM can hold.
        limiter: the binding limits, or why the kernel cannot run.
        limits: every limit that applies, in blocks.
        cluster: blocks of a cluster.
        clusters: resident clusters on the device; None without clusters.
        idle_sms: SMs without a block, as no cluster has room there.
        predicted: whether `clusters` is what is expected of such cards, as no driver stated it.
        tile_width: TILE_WIDTH of the square tiled kernel; None for another kernel.
        flop_per_byte: operations per byte of device memory; None, like the following, for another
            kernel and for a tile that cannot run.
        bound_gflops: GFLOP/s that the memory bandwidth can feed.
        peak_share: that bound as a share (0..1) of the fp32 peak.
    """

    threads: int
    registers: int
    shared: int
    blocks_per_sm: int
    occupancy: float
    limiter: str
    limits: Mapping[str, int]
    barriers: int = 1
    carve_out: int | None = None
    cluster: int = 1
    clusters: int | None = None
    idle_sms: int = 0
    predicted: bool = False
    tile_width: int | None = None
    flop_per_byte: float | None = None
    bound_gflops: float | None = None
    peak_share: float | None = None


def kernel_row(device: SmLimits, demand: BlockDemand) -> OccupancyRow:
    """The row of one kernel.

    Raises:
        UsageError: for impossible amounts.
    """
    resident, limiter = demand.on(device), ""
    if demand.threads > device.threads_per_block:
        limiter = f"{demand.threads} threads a block, at most {device.threads_per_block}"
    elif not resident.blocks_per_sm:
        limiter = resident.limiter
    return OccupancyRow(
        **vars(demand),
        blocks_per_sm=resident.blocks_per_sm,
        occupancy=resident.occupancy,
        limiter=f"does not fit: {limiter}" if limiter else resident.limiter,
        limits=resident.limits,
        clusters=resident.clusters,
        idle_sms=resident.idle_sms,
        predicted=demand.cluster > 1 and isinstance(device, Device) and not device.knows_clusters,
    )


def tile_width_rows(
    device: SmLimits, registers: Mapping[int, int], cluster: int = 1
) -> tuple[OccupancyRow, ...]:
    """Rows of the square tiled kernel, one for each TILE_WIDTH with its compiled registers.

    A block has TILE_WIDTH^2 threads and two fp32 tiles in shared memory. A width whose block the
    device cannot run is a row of 0 blocks that says so. The SM of a compute capability has no
    bandwidth, so its rows have no bounds.

    Raises:
        UsageError: for a TILE_WIDTH below 1 or negative registers.
    """
    rows = []
    for width, count in registers.items():
        demand = BlockDemand(width**2, count, shared_bytes(width), cluster=cluster)
        row = replace(kernel_row(device, demand), tile_width=width)
        if row.blocks_per_sm and isinstance(device, Device):
            flop_per_byte = roofline.intensity(width, width)
            bound = roofline.bandwidth_bound(device.memory_bandwidth, flop_per_byte)
            row = replace(
                row,
                flop_per_byte=flop_per_byte,
                bound_gflops=bound / 1e9,
                peak_share=roofline.attainable(device, flop_per_byte) / device.peak_fp32,
            )
        rows.append(row)
    return tuple(rows)


def tiled_registers(arch: str, widths: Sequence[int]) -> dict[int, int]:
    """Registers of a thread of the square tiled kernel, compiled for an architecture.

    Raises:
        UsageError: for a TILE_WIDTH that the kernel does not support.
        MissingError: without a compiler.
        AutotuneError: if it does not compile.
    """
    for width in widths:
        if width not in TILE_WIDTHS:
            least, most = TILE_WIDTHS[0], TILE_WIDTHS[-1]
            raise UsageError(f"TILE_WIDTH is {width}; give {least} to {most}")
    problem, cache = Problem(1, 1, 1), settings.cache_dir()

    def registers(width: int) -> int:
        config = Config.of(TILED.name, {"tile_width": width, "specialized": 1})
        (launch,) = registry.plan(config, problem).launches
        program = compiler.compile(launch.template, arch, cache=cache)
        if isinstance(program, CompileFailure):
            raise AutotuneError(f"{launch.template.label} for {arch}: {program.reason}")
        return program.registers

    with ThreadPoolExecutor() as pool:
        return dict(zip(widths, pool.map(registers, widths), strict=True))


WORTH = {"shared\nbytes": -7.5, "regs": -6.5, "limiter": -4.5, "limits": -11.5}
"""The worth of columns that stand before more useful ones; see `FittedTable`."""


def render(rows: Sequence[OccupancyRow]) -> FittedTable:
    """The rows as a table for 80 columns or more; columns without any value are left out.

    The rows have the same cluster size; clusters of several blocks show no bounds, for lack of
    room.
    """
    size = rows[0].cluster
    bounds = rows if size == 1 else ()
    columns = {
        "TILE_\nWIDTH": [cell(row.tile_width, "{}") for row in rows],
        "threads": [str(row.threads) for row in rows],
        "regs": [str(row.registers) for row in rows],
        "shared\nbytes": [str(row.shared) for row in rows],
        "blocks\nan SM": [str(row.blocks_per_sm) for row in rows],
        "occu-\npancy": [f"{row.occupancy:.0%}" for row in rows],
        f"clusters\nof {size}": [cell(row.clusters, "{}") for row in rows],
        "idle\nSMs": [str(row.idle_sms) if size > 1 else "" for row in rows],
        "limiter": [row.limiter for row in rows],
        "FLOP/B": [cell(row.flop_per_byte, "{:g}") for row in bounds],
        "bound\nGFLOP/s": [cell(row.bound_gflops, "{:,.1f}") for row in bounds],
        "of\npeak": [cell(row.peak_share, "{:.0%}") for row in bounds],
        "limits": [
            "" if row.tile_width else ", ".join(f"{n} by {name}" for name, n in row.limits.items())
            for row in rows
        ],
    }
    shown = {header: cells for header, cells in columns.items() if any(cells)}
    table = FittedTable()
    for header in shown:
        kind: Kind = "prose" if header in ("limiter", "limits") else "number"
        table.add(header, kind=kind, worth=WORTH.get(header))
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*cells)
    return table
