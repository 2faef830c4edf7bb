"""One thread an element of C, straight from global memory (`cuda_src/naive.cu`)."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.base import Params, Rule, Work
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, Launch, LaunchPlan, Resources, Template
from autotune.families.shared.conventions import (
    CUDA_CORES,
    along_k,
    grid_fault,
    operands,
    square_tiles,
    threads_fault,
    variants,
)
from autotune.problem import Problem

MAPPINGS = ("coalesced", "uncoalesced")
BLOCKS = (8, 16, 32)
STEPS = 4
"""Steps of K whose loads the compiler sends off together."""
REGISTERS = 32
"""Registers a thread: what NVRTC 13.5 gives most instances on sm_80, 90, 100 (elsewhere to 62)."""


@dataclass(frozen=True)
class Naive:
    """`block` is the side of the square thread block; `mapping` says along which dimension of C
    neighbouring threads lie: N (`coalesced`) or M (`uncoalesced`)."""

    @property
    def name(self) -> str:
        return "naive"

    @property
    def computes(self) -> tuple[str, ...]:
        return CUDA_CORES

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """Every value of every parameter."""
        del problem, device
        return {"mapping": MAPPINGS, "block": BLOCKS}

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""

        def threads(p: Params) -> str | None:
            return threads_fault(p["block"] ** 2, device)

        def grid(p: Params) -> str | None:
            return grid_fault(square_tiles(problem, p["block"]))

        return Rule("threads", ("block",), threads), Rule("grid", ("block",), grid)

    def estimate(self, config: Config) -> Resources:
        """Threads, and a guess of the registers; no shared memory."""
        return Resources(config.integer("block") ** 2, REGISTERS, shared=0)

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does: a load of each operand for one multiply-add. A turn is `STEPS`.

        The L1 cache serves a load line by line: a warp reads as many of A as it has rows, or of a
        transposed B as it has columns.
        """
        side = config.integer("block")
        across, along = 32 // side, side
        rows, columns = (across, along) if _coalesced(config) else (along, across)
        lines_a = rows if along_k(problem, "a") else 1
        lines_b = columns if along_k(problem, "b") else 1
        warps = side**2 // 32
        return Work(
            blocks=square_tiles(problem, side) * problem.batch,
            rows=side,
            columns=side,
            warps=warps,
            turns=problem.k / STEPS,
            issue=warps * STEPS,
            shared=warps * STEPS * (lines_a + lines_b),
            bytes=2 * side * STEPS * problem.element_bytes,
            traits=("naive",),
        )

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """One launch with one block for each block x block elements of each C."""
        del alignment  # elements are loaded one by one
        side = config.integer("block")
        coalesced = "COALESCED", int(_coalesced(config))
        launch = Launch(
            template=Template("naive.cu", "naive", (coalesced, *variants(problem))),
            grid=(square_tiles(problem, side), 1, problem.batch),
            block=(side, side, 1),
            shared=0,
            arguments=operands(problem),
        )
        return LaunchPlan(config, (launch,))


NAIVE = Naive()


def _coalesced(config: Config) -> bool:
    return config.values["mapping"] == "coalesced"
