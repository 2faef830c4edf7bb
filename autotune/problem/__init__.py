"""The problem: a GEMM's shape, precision, layout, batch and epilogue."""

from __future__ import annotations

from autotune.problem.problem import (
    COMPUTES,
    EPILOGUES,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    LAYOUTS,
    OUTPUTS,
    SIZES,
    TYPES,
    Problem,
    Type,
    compute_of,
    distance,
    epilogue_of,
)

__all__ = [
    "COMPUTES",
    "EPILOGUES",
    "LARGEST_BATCH",
    "LARGEST_DIMENSION",
    "LAYOUTS",
    "OUTPUTS",
    "SIZES",
    "TYPES",
    "Problem",
    "Type",
    "compute_of",
    "distance",
    "epilogue_of",
]
