"""The tensor cores of Hopper, fed by bulk copies (`cuda_src/wgmma.cu`)."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.base import Work
from autotune.families.config import Config, Value
from autotune.families.legacy import Params, Rule, adapted
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.families.wgmma import launches, tile_choice
from autotune.families.wgmma.rules import rules
from autotune.families.wgmma.terms import (
    CLUSTERS,
    FIXED_SHARED,
    LOWS,
    PACKS,
    REDUCTIONS,
    SCHEDULES,
    SOURCES,
    SPAN,
    launch_registers,
    stage_bytes,
    staged_bytes,
    thread_count,
)
from autotune.families.wgmma.work import work
from autotune.problem import Problem


@dataclass(frozen=True)
class Wgmma:
    """Tiles of bm x bn; `swap` computes them transposed, for short or awkwardly stored operands.

    One warpgroup brings blocks of `bk` steps of K into `stages` buffers, for `consumers` that share
    a tile (`cooperative`) or have a whole one by turns (`pingpong`), while `cluster` blocks bring
    parts of a tile for each other. 32-bit operands that do not run along K go through `registers`;
    those of `tf32x3` are split, Q's low part being made in the `kernel` or by a `pass` before it,
    and are added up in fp32 after every `promote` blocks of K. K is shared by `split_k` blocks,
    whose sums are `fused`, or the last tiles are one `stream` for `workers` blocks, which also
    otherwise stay for all the tiles; `group` tile rows are walked together. `min_blocks` are
    resident, and a `staged` tile is stored in whole lines.
    """

    @property
    def name(self) -> str:
        return "wgmma"

    @property
    def computes(self) -> tuple[str, ...]:
        return "tf32", "tf32x3", "f16", "bf16"

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """The values worth trying on the problem; the rules decide which go together."""
        swaps = tile_choice.swaps(problem)
        bm, bn = set[int](), set[int]()
        for swap in swaps:
            heights = tile_choice.heights(problem, device, swap)
            bm.update(heights if swap else tile_choice.BLOCK_ROWS)
            bn.update(tile_choice.BLOCK_ROWS if swap else heights)
        wide, split = problem.element_bytes == 4, problem.products > 1
        step = SPAN // problem.element_bytes
        return {
            "swap": swaps,
            "bm": tuple(sorted(bm)),
            "bn": tuple(sorted(bn)),
            "consumers": (1, 2, 3),
            "schedule": SCHEDULES,
            "min_blocks": (1, 2, 3),
            "source": SOURCES if wide else SOURCES[:1],
            "low": LOWS if split else LOWS[:1],
            "pack": PACKS,
            "bk": (step, 2 * step),
            "promote": (0, 1, 2, 4) if split else (0,),
            "cluster": tuple(CLUSTERS),
            "split_k": (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128),
            "reduction": REDUCTIONS,
            "workers": (0, *(blocks * device.sms for blocks in (1, 2, 3))),
            "store": ("direct", "staged"),
            "stages": (3, 4, 5, 6, 7, 8),
            "group": (1, 4, 8, 16),
        }

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""
        return rules(problem, device)

    def estimate(self, config: Config) -> Resources:
        """Threads, registers at the launch, and the least shared memory of such blocks.

        The size of elements is no parameter: what only 32-bit operands have is counted so, all else
        as 16-bit. It is mostly the registers that decide how many blocks an SM holds.
        """
        p: Params = config.values
        wide = p["low"] != "none" or p["source"] == "registers" or p["bk"] == SPAN // 4
        shared = FIXED_SHARED + p["stages"] * stage_bytes(p, 4 if wide else 2) + staged_bytes(p, 2)
        return Resources(thread_count(p), launch_registers(p), shared)

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does, for the cost model."""
        return work(config.values, problem)

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """A copy of the operands that bulk copies cannot read, and the product."""
        return launches.plan(config, problem, alignment)


WGMMA = adapted(
    Wgmma(), sources=("wgmma.cu", "pack.cu"), order=50, search_order=0, tensor_cores=True
)
