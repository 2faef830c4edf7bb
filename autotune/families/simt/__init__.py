"""Register-tiled fp32 kernels on CUDA cores."""

from autotune.families.simt.family import SIMT

FAMILIES = (SIMT,)
