"""The register-tiled fp32 kernel on CUDA cores (`cuda_src/simt.cu`)."""

from __future__ import annotations

from autotune.families.base import Family
from autotune.families.plan import Resources
from autotune.families.shared.precisions import CUDA_CORES
from autotune.families.simt.launches import plan
from autotune.families.simt.parameters import SimtParams
from autotune.families.simt.rules import RULES
from autotune.families.simt.summation import summation, summation_order
from autotune.families.simt.work import work
from autotune.problem import Problem


def _resources(p: SimtParams, _problem: Problem) -> Resources:
    """Threads, shared memory and a guess of the registers."""
    return Resources(p.threads, p.register_estimate, p.shared_bytes())


SIMT = Family(
    name="simt",
    params=SimtParams,
    sources=("simt.cu", "pack.cu", "split_k.cu"),
    precisions=CUDA_CORES,
    order=20,
    rules=RULES,
    resources=_resources,
    block_work=work,
    launch_plan=plan,
    summation=summation,
    summation_order=summation_order,
    search_order=2,
    on_ladder=True,
)
