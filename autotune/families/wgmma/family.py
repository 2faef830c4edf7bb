"""The warp-specialised kernel on the tensor cores of Hopper, fed by TMA (`cuda_src/wgmma.cu`)."""

from __future__ import annotations

from autotune.families.base import Family
from autotune.families.plan import Resources
from autotune.families.shared.precisions import EIGHT_BITS, TENSOR_CORES
from autotune.families.wgmma.launches import plan
from autotune.families.wgmma.operands import LINE_BYTES
from autotune.families.wgmma.parameters import WgmmaParams
from autotune.families.wgmma.resources import (
    FIXED_SHARED,
    launch_registers,
    thread_count,
)
from autotune.families.wgmma.rules import RULES
from autotune.families.wgmma.summation import summation, summation_order
from autotune.families.wgmma.work import work


def _resources(p: WgmmaParams) -> Resources:
    """Threads, registers at the launch, and the least shared memory of a block.

    The element size is no parameter: a configuration that only 32-bit operands have is counted as
    32-bit, any other as 16-bit. It is mostly the registers that limit the resident blocks.
    """
    wide = p.low != "none" or p.source == "registers" or p.bk == LINE_BYTES // 4
    stage = p.bytes_of_rows(4 if wide else 2, p.tile_n)
    shared = FIXED_SHARED + p.stages * stage + p.store_bytes(output_bytes=2)
    needed = max(p.register_estimate, p.gathering_registers)
    return Resources(
        thread_count(p.consumers), launch_registers(p.consumers, p.min_blocks, needed), shared
    )


WGMMA = Family(
    name="wgmma",
    params=WgmmaParams,
    sources=("wgmma.cu", "pack.cu"),
    precisions=(*TENSOR_CORES, *EIGHT_BITS),
    order=50,
    rules=RULES,
    resources=_resources,
    block_work=work,
    launch_plan=plan,
    summation=summation,
    summation_order=summation_order,
    tensor_cores=True,
    search_order=0,
    on_ladder=True,
)
