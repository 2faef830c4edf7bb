"""Tensor cores through registers (mma.sync)."""

from autotune.families.mma.family import MMA

FAMILIES = (MMA,)
