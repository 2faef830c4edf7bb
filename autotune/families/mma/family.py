"""The family `mma`: tensor cores through registers, by mma.sync (`cuda_src/mma.cu`)."""

from __future__ import annotations

from autotune.families.base import Family
from autotune.families.mma.launches import plan
from autotune.families.mma.parameters import MmaParams
from autotune.families.mma.rules import RULES
from autotune.families.mma.summation import summation, summation_order
from autotune.families.mma.work import work
from autotune.families.plan import Resources
from autotune.families.shared.precisions import EIGHT_BITS, TENSOR_CORES
from autotune.problem import Problem


def resources(p: MmaParams, _problem: Problem) -> Resources:
    """Threads, shared memory and a guess of the registers, for operands of whole vectors."""
    return Resources(p.threads, p.registers, p.shared_bytes)


MMA = Family(
    name="mma",
    params=MmaParams,
    sources=("mma.cu", "pack.cu"),
    precisions=(*TENSOR_CORES, *EIGHT_BITS),
    order=40,
    search_order=1,
    tensor_cores=True,
    on_ladder=True,
    rules=RULES,
    resources=resources,
    block_work=work,
    launch_plan=plan,
    summation=summation,
    summation_order=summation_order,
)
