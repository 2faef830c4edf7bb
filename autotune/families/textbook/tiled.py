"""The tiled kernel: square TILE_WIDTH tiles in shared memory, as in the textbooks
(`cuda_src/tiled.cu`)."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.device import Device
from autotune.errors import DeviceError
from autotune.families.base import Family, Work
from autotune.families.config import Config
from autotune.families.parameters import values
from autotune.families.plan import Alignment, Launch, LaunchPlan, Resources, Template
from autotune.families.rules import Rule
from autotune.families.shared.arguments import operands, variants
from autotune.families.shared.launch_limits import grid_fault, threads_fault
from autotune.families.shared.precisions import CUDA_CORES
from autotune.families.shared.tiles import tile_count
from autotune.families.summation import sequential, unordered
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

TILE_WIDTHS = tuple(range(4, 33))
REGISTERS = 32
"""Registers a thread: what NVRTC 13.5 gives most instances on sm_80, 90, 100 (elsewhere to 62)."""


@dataclass(frozen=True)
class TiledParams:
    """Parameters of the tiled kernel.

    Attributes:
        tile_width: side of the tiles, and of the thread block.
        specialized: 1 for a kernel compiled for its `tile_width`, 0 for the one kernel of all
            widths, which reads the width from its launch.
    """

    tile_width: int = field(metadata=values(*TILE_WIDTHS))
    specialized: int = field(metadata=values(1, 0))


def shared_bytes(tile_width: int) -> int:
    """Dynamic shared memory a block: one fp32 tile of each operand."""
    return 2 * tile_width**2 * 4


def widest(device: Device) -> int:
    """The widest TILE_WIDTH whose block the device allows, by threads and by shared memory.

    Raises:
        DeviceError: if not even the narrowest tile fits.
    """
    for width in reversed(TILE_WIDTHS):
        if _threads_fault(width, device) is None and _shared_fault(width, device) is None:
            return width
    raise DeviceError(
        f"no tile fits {device.name}: {TILE_WIDTHS[0]}x{TILE_WIDTHS[0]} needs "
        f"{TILE_WIDTHS[0] ** 2} threads of {device.threads_per_block} and "
        f"{shared_bytes(TILE_WIDTHS[0])} bytes of shared memory of {device.shared_per_block}"
    )


def _threads_fault(tile_width: int, device: Device) -> str | None:
    """The device allows a block of so many threads."""
    return threads_fault(tile_width**2, device)


def _shared_fault(tile_width: int, device: Device) -> str | None:
    """Both tiles fit the shared memory that a block gets without asking."""
    needed = shared_bytes(tile_width)
    if needed <= device.shared_per_block:
        return None
    return f"needs {needed} bytes a block, {device.name} allows {device.shared_per_block}"


def _grid_fault(tile_width: int, problem: Problem) -> str | None:
    """A grid has a block for each tile."""
    return grid_fault(tile_count(problem, tile_width, tile_width))


def resources(p: TiledParams, _problem: Problem, _device: Device | None) -> Resources:
    """Threads, shared memory and a guess of the registers."""
    return Resources(p.tile_width**2, REGISTERS, shared_bytes(p.tile_width))


def work(p: TiledParams, problem: Problem) -> Work:
    """The work of a block; an iteration is a tile of K.

    A multiply-add takes two loads from shared memory; where the width is compiled in, the compiler
    reads four values of A at once. About 24 more instructions go into each iteration.
    """
    width = p.tile_width
    warps = ceil_div(width**2, 32)
    loads = 1.25 if p.specialized else 2.0
    return Work(
        blocks=tile_count(problem, width, width) * problem.batch,
        rows=width,
        columns=width,
        warps=warps,
        iterations=ceil_div(problem.k, width),
        issue=warps * (width * (1 + loads) + 24),
        shared=warps * width * loads,
        waits=1,
        bytes=2 * width**2 * problem.element_bytes,
        traits=("tiled",),
    )


def plan(config: Config, p: TiledParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One launch with one block for each tile of each C."""
    del alignment  # elements are loaded one by one
    width = p.tile_width
    compiled_width = "TILE_WIDTH", width if p.specialized else 0
    launch = Launch(
        template=Template("tiled.cu", "tiled", (compiled_width, *variants(problem)), named=True),
        grid=(tile_count(problem, width, width), 1, problem.batch),
        block=(width, width, 1),
        shared=shared_bytes(width),
        arguments=operands(problem),
    )
    return LaunchPlan(config, (launch,))


TILED = Family(
    name="tiled",
    params=TiledParams,
    sources=("tiled.cu",),
    precisions=CUDA_CORES,
    order=10,
    rules=(
        Rule("threads", _threads_fault),
        Rule("shared memory", _shared_fault),
        Rule("grid", _grid_fault),
    ),
    resources=resources,
    block_work=work,
    launch_plan=plan,
    summation=sequential,
    summation_order=unordered,
    on_ladder=True,
)
