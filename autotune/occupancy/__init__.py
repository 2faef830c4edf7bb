"""Resident blocks per SM, and the roofline bounds that follow from a device's limits."""

from __future__ import annotations

from autotune.occupancy.calculator import Occupancy, occupancy
from autotune.occupancy.limits import ARCHITECTURES

__all__ = ["ARCHITECTURES", "Occupancy", "occupancy"]
