"""The enumerations that Python and the CUDA sources share.

Each tuple lists the values of an `enum class` in its order. A test compares all of them with
`cuda_src/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, get_args

from autotune.families.plan import Enumerator
from autotune.problem import ELEMENT_TYPES, EPILOGUES, SCALES

Reduction = Literal["none", "separate", "fused", "stream"]
WgmmaReduction = Literal["none", "fused", "stream"]
Store = Literal["direct", "staged", "tma"]
Order = Literal["rows", "columns", "snake", "row-pairs", "column-pairs"]

REDUCTION: tuple[Reduction, ...] = get_args(Reduction)
"""The ways to reduce the partial sums of several blocks to one (`k_sharing/reduction.cuh`)."""
WGMMA_REDUCTION: tuple[WgmmaReduction, ...] = get_args(WgmmaReduction)
"""The reductions that `wgmma.cu` has."""
STORE: tuple[Store, ...] = get_args(Store)
"""The ways in which `wgmma.cu` stores C: from registers, through shared memory, from there by
TMA."""
ORDERS: tuple[Order, ...] = get_args(Order)
"""Paths of a thread of `simt.cu` over its accumulators (`simt/fragments.cuh`)."""

ENUMERATIONS: Mapping[str, tuple[str, ...]] = {
    "ElementType": tuple(element.enumerator for element in ELEMENT_TYPES.values()),
    "Epilogue": EPILOGUES,
    "Scale": SCALES,
    "Reduction": REDUCTION,
    "Store": STORE,
    "Order": ORDERS,
}
"""The values of each `enum class`, as Python spells them."""


@lru_cache(maxsize=64)
def enumerator(type: str, value: str) -> Enumerator:
    """The value of an `enum class` of the CUDA sources.

    Raises:
        ValueError: if the enumeration has no such value.
    """
    number = ENUMERATIONS[type].index(value)
    return Enumerator(type, value.upper().replace("-", "_"), number)
