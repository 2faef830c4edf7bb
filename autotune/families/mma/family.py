"""The tensor cores by way of registers (`cuda_src/mma.cu`)."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.base import Work
from autotune.families.config import Config, Value
from autotune.families.legacy import Params, Rule, adapted
from autotune.families.mma import launches
from autotune.families.mma.k_sharing import SPLITS
from autotune.families.mma.rules import rules
from autotune.families.mma.terms import (
    ASYNC_CAPABILITY,
    PACKS,
    STORES,
    register_estimate,
    shared_bytes,
    thread_count,
)
from autotune.families.mma.work import work
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.problem import Problem


@dataclass(frozen=True)
class Mma:
    """Block tile bm x bn x bk and warp tile wm x wn, in products of 16 x 8 of `compute`.

    With `swap` the tiles are those of C^T, so that 8 rows of C are the narrow side of a product.
    `slices` groups of warps share the bk steps of a tile, and `split_k` blocks share K; the last of
    them adds up their sums. `pack` copies operands into an aligned workspace first, and `group`
    tile rows are walked together. `stages` buffers are filled by `copy` (`async`: cp.async, sm_80
    and later; `staged`: through registers). Warps hold two sets of fragments, but only one where
    `min_blocks` = 2 blocks are to be resident. After `promote` buffers sums are added up in fp32
    outside of the tensor cores (0: never). `store` puts C out `direct` from registers or `staged`
    through shared memory, in whole rows.
    """

    @property
    def name(self) -> str:
        return "mma"

    @property
    def computes(self) -> tuple[str, ...]:
        return "tf32", "tf32x3", "f16", "bf16"

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """Every value of every parameter; the rules decide which go together."""
        copies = device.compute_capability >= ASYNC_CAPABILITY
        return {
            "compute": (problem.compute,),
            "swap": (0, 1),
            "bm": (16, 32, 64, 128, 256),
            "bn": (8, 16, 32, 64, 128, 256),
            "wm": (16, 32, 64),
            "wn": (8, 16, 32, 64),
            "slices": (1, 2, 4),
            "bk": (16, 32, 64, 128),
            "copy": ("async" if copies else "staged",),
            "pack": PACKS,
            "stages": (2, 3, 4, 5, 6),
            "split_k": SPLITS,
            "promote": (0, 2, 4, 8),
            "min_blocks": (1, 2),
            "store": STORES,
            "group": (1, 4, 8),
        }

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""
        return rules(problem, device)

    def estimate(self, config: Config) -> Resources:
        """Threads, shared memory and a guess of the registers, for operands of whole vectors."""
        p: Params = config.values
        return Resources(thread_count(p), register_estimate(p), shared_bytes(p))

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does, for the cost model."""
        return work(config.values, problem)

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """A copy of the operands that are packed, and the product."""
        return launches.plan(config, problem, alignment)


MMA = adapted(Mma(), sources=("mma.cu", "pack.cu"), order=40, search_order=1, tensor_cores=True)
