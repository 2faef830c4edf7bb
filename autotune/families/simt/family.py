"""The register-tiled fp32 kernel on the CUDA cores, `cuda_src/simt.cu`."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.base import Work
from autotune.families.config import Config, Value
from autotune.families.legacy import Params, Rule, adapted
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.families.shared.precisions import CUDA_CORES
from autotune.families.simt import launches
from autotune.families.simt.rules import rules
from autotune.families.simt.terms import (
    COPIES,
    ORDERS,
    PACKS,
    REDUCTIONS,
    register_estimate,
    shared_bytes,
    thread_count,
)
from autotune.families.simt.work import work
from autotune.problem import Problem


@dataclass(frozen=True)
class Simt:
    """Block tile bm x bn x bk, warp tile wm x wn, thread tile tm x tn, and how data moves.

    `slices` groups of warps share the bk steps of a tile, and `chunks` of K are summed apart, for
    the sake of accuracy. K is shared by `split_k` blocks, whose
    sums become one by `reduction`: in a `separate` launch, or `fused` into the last block; `stream`
    cuts the K of the tiles that fill no whole wave among `workers` blocks. `pack` copies operands
    into an aligned workspace first, and `group` tile rows are walked together. `stages` buffers are
    filled by `copy` (`async`: cp.async, sm_80 and later; `staged`: through registers), `fragments`
    sets of registers hold what is multiplied in the `order` of the thread tile, behind a `fence`
    that keeps their loads early. `min_blocks` resident blocks bound the registers.
    """

    @property
    def name(self) -> str:
        return "simt"

    @property
    def computes(self) -> tuple[str, ...]:
        return CUDA_CORES

    def domain(self, problem: Problem, device: Device) -> dict[str, tuple[Value, ...]]:
        """Every value of every parameter; the rules decide which go together."""
        del problem
        return {
            "bm": (16, 32, 64, 128),
            "bn": (16, 32, 64, 128, 256),
            "wm": (16, 32, 64, 128),
            "wn": (16, 32, 64),
            "tm": (4, 8, 16),
            "tn": (4, 8),
            "slices": (1, 2, 4, 8),
            "bk": (8, 16, 32, 64),
            "copy": COPIES,
            "stages": (2, 3, 4, 5),
            "fragments": (1, 2),
            "min_blocks": (1, 2),
            "split_k": (1, 2, 3, 4, 8, 16, 32, 64, 128),
            "reduction": REDUCTIONS,
            "workers": (0, *(blocks * device.sms for blocks in (1, 2))),
            "chunks": (1, 2),
            "pack": PACKS,
            "group": (1, 8),
            "fence": (0, 1),
            "order": ORDERS,
        }

    def rules(self, problem: Problem, device: Device) -> tuple[Rule, ...]:
        """The reasons to reject a combination on `device`."""
        return rules(problem, device)

    def estimate(self, config: Config) -> Resources:
        """Threads, shared memory and a guess of the registers."""
        p: Params = config.values
        return Resources(thread_count(p), register_estimate(p), shared_bytes(p))

    def work(self, config: Config, problem: Problem) -> Work:
        """What one block does, for the cost model."""
        return work(config.values, problem)

    def plan(self, config: Config, problem: Problem, alignment: Alignment) -> LaunchPlan:
        """Copies of the operands that are packed, the product, and a launch that adds up shares."""
        return launches.plan(config, problem, alignment)


SIMT = adapted(
    Simt(),
    sources=("simt.cu", "pack.cu", "split_k.cu"),
    order=20,
    search_order=2,
    tensor_cores=False,
)
