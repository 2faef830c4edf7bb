"""Tensor cores through registers, by mma.sync (`cuda_src/mma.cu`)."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.family import EIGHT_BITS, TENSOR_CORES, Family
from autotune.families.mma.launches import plan, work
from autotune.families.mma.parameters import MmaParams, converts
from autotune.families.mma.rules import RULES, SUMMATION, SUMMATION_ORDER
from autotune.families.plan import Resources
from autotune.families.shared.limits import likely_registers
from autotune.problem import Problem

SPARE_REGISTERS, AHEAD_REGISTERS, CONVERSION_REGISTERS = 24, 52, 80
"""Registers that the compiler takes beside the estimated ones, where it is free to; with
`copy=ahead`; for 8-bit floats as fp16. Of nine of ten kernels no more (NVRTC 13, sm_80 to
sm_120)."""


def resources(p: MmaParams, problem: Problem, device: Device | None) -> Resources:
    """Threads, shared memory and a guess of the registers, for operands of whole vectors."""
    guess, spare = p.registers, AHEAD_REGISTERS if p.copy == "ahead" else SPARE_REGISTERS
    if device is not None:
        spare += p.extra_registers(problem)
        spare += CONVERSION_REGISTERS * converts(problem, device)
    registers = likely_registers(guess, spare, p.min_blocks, p.threads, device)
    return Resources(p.threads, registers, p.shared_bytes)


MMA = Family(
    name="mma",
    params=MmaParams,
    sources=("mma.cu", "pack.cu"),
    precisions=(*TENSOR_CORES, *EIGHT_BITS),
    order=40,
    search_order=1,
    tensor_cores=True,
    rules=RULES,
    resources=resources,
    block_work=work,
    launch_plan=plan,
    summation=SUMMATION,
    summation_order=SUMMATION_ORDER,
)

FAMILIES = (MMA,)
