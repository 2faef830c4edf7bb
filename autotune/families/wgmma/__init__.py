"""Tensor cores of Hopper (wgmma), fed by bulk copies."""

from autotune.families.wgmma.family import WGMMA

FAMILIES = (WGMMA,)
