"""The problem: a GEMM's shape, precision, layout, batch and epilogue."""

from __future__ import annotations

from autotune.problem.precision import (
    ELEMENT_TYPES,
    PRECISIONS,
    TENSOR_MAP_TYPES,
    ElementType,
    Precision,
)
from autotune.problem.problem import (
    COMPUTES,
    EPILOGUES,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    LAYOUTS,
    OUTPUTS,
    Problem,
    compute_of,
    distance,
    epilogue_of,
)

__all__ = [
    "COMPUTES",
    "ELEMENT_TYPES",
    "EPILOGUES",
    "LARGEST_BATCH",
    "LARGEST_DIMENSION",
    "LAYOUTS",
    "OUTPUTS",
    "PRECISIONS",
    "TENSOR_MAP_TYPES",
    "ElementType",
    "Precision",
    "Problem",
    "compute_of",
    "distance",
    "epilogue_of",
]
