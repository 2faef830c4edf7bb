"""The textbook kernels: `naive`, in which a thread computes an element of C from global memory
(`cuda_src/naive.cu`), and `tiled`, with square tiles in shared memory (`cuda_src/tiled.cu`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.family import CUDA_CORES, Family, ParameterFunction, Rule, Work, parameter
from autotune.families.plan import Alignment, Launch, LaunchPlan, Resources, Template
from autotune.families.shared.arguments import along_k, operands, variants
from autotune.families.shared.limits import grid_fault, threads_fault
from autotune.families.shared.tiling import WARP, buffer_bytes, tile_count
from autotune.families.summation import sequential, unordered
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

STEPS = 4
"""Steps of K whose loads the compiler issues together."""
REGISTERS = 32
"""Registers a thread: what NVRTC 13.5 gives most instances on sm_80, 90, 100 (elsewhere to 62)."""


@dataclass
class NaiveParams:
    """Parameters of the naive kernel.

    Attributes:
        mapping: the dimension of C along which neighbouring threads lie: N (`coalesced`) or M
            (`uncoalesced`).
        block: side of the square thread block.
    """

    mapping: Literal["coalesced", "uncoalesced"] = parameter("coalesced", "uncoalesced")
    block: int = parameter(8, 16, 32)

    @property
    def coalesced(self) -> bool:
        """Whether neighbouring threads store neighbouring elements of a row."""
        return self.mapping == "coalesced"


def _side_rules(name: str) -> tuple[Rule, Rule]:
    """The rules that a device launches square blocks, and one for each tile; `name` is the
    parameter that is their side."""

    def threads(p: object, _problem: Problem, device: Device) -> str | None:
        return threads_fault(getattr(p, name) ** 2, device)

    def grid(p: object, problem: Problem, _device: Device) -> str | None:
        return grid_fault(tile_count(problem, getattr(p, name), getattr(p, name)))

    return Rule("threads", threads, (name,)), Rule("grid", grid, (name,))


def _naive_work(p: NaiveParams, problem: Problem) -> Work:
    """The work of a block: two loads for each multiply-add; an iteration is `STEPS` steps of K.

    The L1 cache serves a load line by line: a warp reads as many lines of A as it has rows, and of
    a transposed B as it has columns.
    """
    across, along = WARP // p.block, p.block
    rows, columns = (across, along) if p.coalesced else (along, across)
    lines_a = rows if along_k(problem, "a") else 1
    lines_b = columns if along_k(problem, "b") else 1
    warps = p.block**2 // WARP
    return Work(
        blocks=tile_count(problem, p.block, p.block) * problem.batch,
        rows=p.block,
        columns=p.block,
        warps=warps,
        iterations=problem.k / STEPS,
        issue=warps * STEPS,
        shared=warps * STEPS * (lines_a + lines_b),
        bytes=2 * p.block * STEPS * problem.element_bytes,
        traits=("naive",),
    )


def _naive_plan(
    config: Config, p: NaiveParams, problem: Problem, _alignment: Alignment
) -> LaunchPlan:
    arguments = ("COALESCED", p.coalesced), *variants(problem)
    return _plan(config, problem, Template("naive.cu", "naive", arguments, named=True), p.block)


def _plan(
    config: Config, problem: Problem, template: Template, side: int, shared: int = 0
) -> LaunchPlan:
    """One launch with one block for each side x side elements of each C, loaded one by one."""
    grid, block = (tile_count(problem, side, side), 1, problem.batch), (side, side, 1)
    return LaunchPlan(config, (Launch(template, grid, block, shared, operands(problem)),))


NAIVE = Family(
    name="naive",
    params=NaiveParams,
    sources=("naive.cu",),
    precisions=CUDA_CORES,
    order=0,
    rules=_side_rules("block"),
    resources=lambda p, _problem, _device: Resources(p.block**2, REGISTERS, shared=0),
    block_work=_naive_work,
    launch_plan=_naive_plan,
    summation=ParameterFunction(sequential),
    summation_order=ParameterFunction(unordered),
)

TILE_WIDTHS = tuple(range(4, 33))


@dataclass
class TiledParams:
    """Parameters of the tiled kernel.

    Attributes:
        tile_width: side of the tiles, and of the thread block.
        specialized: 1 for a kernel compiled for its `tile_width`, 0 for the one kernel of all
            widths, which reads the width from its launch.
    """

    tile_width: int = parameter(*TILE_WIDTHS)
    specialized: int = parameter(1, 0)


def shared_bytes(tile_width: int) -> int:
    """Dynamic shared memory a block: one fp32 tile of each operand."""
    return buffer_bytes(tile_width, tile_width, tile_width, element_bytes=4)


def _shared_fault(p: TiledParams, _problem: Problem, device: Device) -> str | None:
    """Both tiles fit the shared memory that a block gets without asking."""
    needed = shared_bytes(p.tile_width)
    if needed <= device.shared_per_block:
        return None
    return f"needs {needed} bytes a block, {device.name} allows {device.shared_per_block}"


def _tiled_work(p: TiledParams, problem: Problem) -> Work:
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


def _tiled_plan(
    config: Config, p: TiledParams, problem: Problem, _alignment: Alignment
) -> LaunchPlan:
    width = p.tile_width
    arguments = ("TILE_WIDTH", width if p.specialized else 0), *variants(problem)
    template = Template("tiled.cu", "tiled", arguments, named=True)
    return _plan(config, problem, template, width, shared_bytes(width))


TILED = Family(
    name="tiled",
    params=TiledParams,
    sources=("tiled.cu",),
    precisions=CUDA_CORES,
    order=10,
    rules=(*_side_rules("tile_width"), Rule("shared memory", _shared_fault, ("tile_width",))),
    resources=lambda p, *_: Resources(p.tile_width**2, REGISTERS, shared_bytes(p.tile_width)),
    block_work=_tiled_work,
    launch_plan=_tiled_plan,
    summation=ParameterFunction(sequential),
    summation_order=ParameterFunction(unordered),
)

FAMILIES = (NAIVE, TILED)
