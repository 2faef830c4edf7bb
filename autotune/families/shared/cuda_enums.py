"""The integers that template arguments of the CUDA sources stand for.

Each tuple lists names in the order of the integers: a name's index is what CUDA takes. TYPE and
OUTPUT are `ElementType.number` of the precision table. A test compares all of them with
`cuda_src/`.
"""

from __future__ import annotations

from typing import Literal, get_args

from autotune.problem import EPILOGUES

Reduction = Literal["none", "separate", "fused", "stream"]
WgmmaReduction = Literal["none", "fused", "stream"]
Store = Literal["direct", "staged", "tma"]

EPILOGUE = EPILOGUES
"""EPILOGUE: bit 0 is the bias, the bits above it the activation (`include/common/epilogue.cuh`)."""
REDUCTION: tuple[Reduction, ...] = get_args(Reduction)
"""REDUCTION of `simt.cu`: how sums of several blocks become one."""
WGMMA_REDUCTION: tuple[WgmmaReduction, ...] = get_args(WgmmaReduction)
"""REDUCTION of `wgmma.cu`."""
STORE: tuple[Store, ...] = get_args(Store)
"""STORE of `wgmma.cu`: from registers, through shared memory, from there by TMA."""
