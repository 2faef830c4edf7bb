"""Square TILE_WIDTH tiles in shared memory, as in the texts (`cuda_src/tiled.cu`)."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.errors import DeviceError
from autotune.families.base import Params, Rule, Work
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, Launch, LaunchPlan, Resources, Template
from autotune.families.shared.conventions import (
    CUDA_CORES,
    grid_fault,
    operands,
    square_tiles,
    threads_fault,
    variants,
)
from autotune.problem import Problem

TILE_WIDTHS = tuple(range(4, 33))
REGISTERS = 32
"""Registers a thread: what NVRTC 13.5 gives most instances on sm_80, 90, 100 (elsewhere to 62)."""


def shared_bytes(tile_width: int) -> int:
    """Dynamic shared memory a block: one fp32 tile of each operand."""
    return 2 * tile_width**2 * 4


def widest(device: Device) -> int:
    """The widest TILE_WIDTH whose block the device allows, by threads and by shared memory.

    Raises:
        DeviceError: if not even the narrowest tile fits.
    """
    for width in reversed(TILE_WIDTHS):
        if threads_fault(width**2, device) is None and _shared_fault(width, device) is None:
            return width
    raise DeviceError(
        f"no tile fits {device.name}: {TILE_WIDTHS[0]}x{TILE_WIDTHS[0]} needs "
        f"{TILE_WIDTHS[0] ** 2} threads of {device.threads_per_block} and "
        f"{shared_bytes(TILE_WIDTHS[0])} bytes of shared memory of {device.shared_per_block}"
    )


@dataclass(frozen=True)
class Tiled:
    """`specialized` is 1 for a kernel compiled for its `tile_width`, 0 for the one kernel of all
    widths, which reads the width from its launch."""

    @property
    def name(self) -> str:
        return "tiled"

    @property
    def computes(self) -> tuple[str, ...]:
        return CUDA_CORES

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """Every value of every parameter."""
        del problem, device
        return {"tile_width": TILE_WIDTHS, "specialized": (1, 0)}

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""

        def threads(p: Params) -> str | None:
            return threads_fault(p["tile_width"] ** 2, device)

        def shared(p: Params) -> str | None:
            return _shared_fault(p["tile_width"], device)

        def grid(p: Params) -> str | None:
            return grid_fault(square_tiles(problem, p["tile_width"]))

        needs = ("tile_width",)
        return (
            Rule("threads", needs, threads),
            Rule("shared memory", needs, shared),
            Rule("grid", needs, grid),
        )

    def estimate(self, config: Config) -> Resources:
        """Threads, shared memory and a guess of the registers."""
        width = config.integer("tile_width")
        return Resources(width**2, REGISTERS, shared_bytes(width))

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does: two loads from shared memory a multiply-add, of which a known width
        lets the compiler read four values of A at once, and about 24 instructions a turn, which
        is a tile."""
        width = config.integer("tile_width")
        warps = -(-(width**2) // 32)
        loads = 1.25 if config.integer("specialized") else 2.0
        return Work(
            blocks=square_tiles(problem, width) * problem.batch,
            rows=width,
            columns=width,
            warps=warps,
            turns=-(-problem.k // width),
            issue=warps * (width * (1 + loads) + 24),
            shared=warps * width * loads,
            waits=1,
            bytes=2 * width**2 * problem.element_bytes,
            traits=("tiled",),
        )

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """One launch with one block for each tile of each C."""
        del alignment  # elements are loaded one by one
        width = config.integer("tile_width")
        compiled_width = "TILE_WIDTH", width if config.integer("specialized") else 0
        launch = Launch(
            template=Template("tiled.cu", "tiled", (compiled_width, *variants(problem))),
            grid=(square_tiles(problem, width), 1, problem.batch),
            block=(width, width, 1),
            shared=shared_bytes(width),
            arguments=operands(problem),
        )
        return LaunchPlan(config, (launch,))


TILED = Tiled()


def _shared_fault(tile_width: int, device: Device) -> str | None:
    needed = shared_bytes(tile_width)
    if needed <= device.shared_per_block:
        return None
    return f"needs {needed} bytes a block, {device.name} allows {device.shared_per_block}"
