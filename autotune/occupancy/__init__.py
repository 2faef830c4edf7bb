"""Resident blocks per SM, and the roofline bounds that follow from a device's limits."""

from __future__ import annotations

from autotune.occupancy.calculator import Occupancy, occupancy
from autotune.occupancy.limits import ARCHITECTURES
from autotune.occupancy.sweeps import (
    BlockDemand,
    Curve,
    Headroom,
    best_block_sizes,
    curve,
    headroom,
)

__all__ = [
    "ARCHITECTURES",
    "BlockDemand",
    "Curve",
    "Headroom",
    "Occupancy",
    "best_block_sizes",
    "curve",
    "headroom",
    "occupancy",
]
