"""The naive kernel: a thread computes an element of C from global memory (`cuda_src/naive.cu`)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from autotune.device import Device
from autotune.families.base import Family, Work
from autotune.families.config import Config
from autotune.families.parameters import values
from autotune.families.plan import Alignment, Launch, LaunchPlan, Resources, Template
from autotune.families.rules import Rule
from autotune.families.shared.arguments import operands, variants
from autotune.families.shared.launch_limits import grid_fault, threads_fault
from autotune.families.shared.layout import along_k
from autotune.families.shared.precisions import CUDA_CORES
from autotune.families.shared.tiles import tile_count
from autotune.families.summation import sequential, unordered
from autotune.problem import Problem

WARP = 32
STEPS = 4
"""Steps of K whose loads the compiler issues together."""
REGISTERS = 32
"""Registers a thread: what NVRTC 13.5 gives most instances on sm_80, 90, 100 (elsewhere to 62)."""


@dataclass(frozen=True)
class NaiveParams:
    """Parameters of the naive kernel.

    Attributes:
        mapping: the dimension of C along which neighbouring threads lie: N (`coalesced`) or M
            (`uncoalesced`).
        block: side of the square thread block.
    """

    mapping: Literal["coalesced", "uncoalesced"] = field(
        metadata=values("coalesced", "uncoalesced")
    )
    block: int = field(metadata=values(8, 16, 32))

    @property
    def coalesced(self) -> bool:
        """Whether neighbouring threads store neighbouring elements of a row."""
        return self.mapping == "coalesced"


def _threads_fault(block: int, device: Device) -> str | None:
    """The device allows a block of so many threads."""
    return threads_fault(block**2, device)


def _grid_fault(block: int, problem: Problem) -> str | None:
    """A grid has a block for each tile."""
    return grid_fault(tile_count(problem, block, block))


def resources(p: NaiveParams, _problem: Problem, _device: Device | None) -> Resources:
    """Threads, and a guess of the registers; no shared memory."""
    return Resources(p.block**2, REGISTERS, shared=0)


def work(p: NaiveParams, problem: Problem) -> Work:
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


def plan(config: Config, p: NaiveParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """One launch with one block for each block x block elements of each C."""
    del alignment  # elements are loaded one by one
    launch = Launch(
        template=Template(
            "naive.cu", "naive", (("COALESCED", p.coalesced), *variants(problem)), named=True
        ),
        grid=(tile_count(problem, p.block, p.block), 1, problem.batch),
        block=(p.block, p.block, 1),
        shared=0,
        arguments=operands(problem),
    )
    return LaunchPlan(config, (launch,))


NAIVE = Family(
    name="naive",
    params=NaiveParams,
    sources=("naive.cu",),
    precisions=CUDA_CORES,
    order=0,
    rules=(Rule("threads", _threads_fault), Rule("grid", _grid_fault)),
    resources=resources,
    block_work=work,
    launch_plan=plan,
    summation=sequential,
    summation_order=unordered,
    on_ladder=True,
)
