"""Resident blocks per SM, and the roofline bounds that follow from a device's limits."""

from __future__ import annotations

from autotune.occupancy.calculator import ARCHITECTURES, Occupancy, occupancy

__all__ = ["ARCHITECTURES", "Occupancy", "occupancy"]
