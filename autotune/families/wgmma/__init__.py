"""The warp-specialised kernel on the tensor cores of Hopper, fed by TMA (`cuda_src/wgmma.cu`)."""

from __future__ import annotations

from autotune.families.family import EIGHT_BITS, TENSOR_CORES, Family
from autotune.families.plan import Resources
from autotune.families.wgmma.k_sharing import SUMMATION, SUMMATION_ORDER
from autotune.families.wgmma.launches import plan, work
from autotune.families.wgmma.parameters import WgmmaParams
from autotune.families.wgmma.rules import RULES

WGMMA = Family(
    name="wgmma",
    params=WgmmaParams,
    sources=("wgmma.cu", "pack.cu"),
    precisions=(*TENSOR_CORES, *EIGHT_BITS),
    order=50,
    rules=RULES,
    resources=lambda p, problem, _: Resources(
        p.threads, p.launch_registers, p.shared_bytes(p.stages, problem)
    ),
    block_work=work,
    launch_plan=plan,
    summation=SUMMATION,
    summation_order=SUMMATION_ORDER,
    tensor_cores=True,
    search_order=0,
)

FAMILIES = (WGMMA,)
