"""The register-tiled fp32 kernel on CUDA cores (`cuda_src/simt.cu`)."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.family import CUDA_CORES, Family
from autotune.families.plan import Resources
from autotune.families.shared.limits import likely_registers
from autotune.families.simt.launches import plan, work
from autotune.families.simt.parameters import SimtParams
from autotune.families.simt.rules import RULES, SUMMATION, SUMMATION_ORDER
from autotune.problem import Problem

SPARE_REGISTERS = {"none": 36, "separate": 36, "fused": 46, "stream": 82}
"""Registers that the compiler takes beside the estimated ones, where it is free to, by `reduction`:
of nine of ten kernels no more (NVRTC 13, sm_80 to sm_120). Of a single set of fragments it makes
two more."""


def _resources(p: SimtParams, _problem: Problem, device: Device | None) -> Resources:
    """Threads, shared memory and a guess of the registers."""
    guess, spare = p.register_estimate, SPARE_REGISTERS[p.reduction]
    spare += 2 * (p.tm + p.tn) if p.fragments == 1 else 0
    registers = likely_registers(guess, spare, p.min_blocks, p.threads, device)
    return Resources(p.threads, registers, p.shared_bytes())


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
    summation=SUMMATION,
    summation_order=SUMMATION_ORDER,
    search_order=2,
)

FAMILIES = (SIMT,)
