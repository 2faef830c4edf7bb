"""GEMV and skinny GEMM: one pass over the larger operand, for at most 16 rows or columns of C
(`cuda_src/gemv.cu`)."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.family import CUDA_CORES, Family, ParameterFunction
from autotune.families.gemv.kernel import GemvParams, plan, work
from autotune.families.gemv.rules import RULES, SUMMATION
from autotune.families.plan import Resources
from autotune.families.shared.limits import likely_registers
from autotune.families.summation import unordered
from autotune.problem import Problem

SPARE_REGISTERS = 12
"""Registers that the compiler takes beside the estimated ones, where it is free to."""


def resources(p: GemvParams, _problem: Problem, device: Device | None) -> Resources:
    """Threads, a guess of the registers, and the shared memory of the layout that takes most."""
    shared = max(p.shared_bytes(b_along_k) for b_along_k in (False, True))
    registers = likely_registers(p.registers, SPARE_REGISTERS, 1, p.threads, device)
    return Resources(p.threads, registers, shared)


GEMV = Family(
    name="gemv",
    params=GemvParams,
    sources=("gemv.cu",),
    precisions=CUDA_CORES,
    order=30,
    search_order=3,
    rules=RULES,
    resources=resources,
    block_work=work,
    launch_plan=plan,
    summation=SUMMATION,
    summation_order=ParameterFunction(unordered),
    narrow=True,
)

FAMILIES = (GEMV,)
