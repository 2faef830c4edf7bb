"""The problem: a GEMM's shape, precision, layout, batch and epilogue."""

from __future__ import annotations

from autotune.problem.arguments import (
    ProblemArguments,
    ProblemDefaults,
    ProblemLike,
    distance,
    problem_of,
    problems_of,
)
from autotune.problem.fields import (
    ACCUMULATES,
    COMPUTES,
    E5M2_OPERANDS,
    ELEMENTWISE,
    EPILOGUES,
    GATE_SPAN,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    LAYOUTS,
    OUTPUTS,
    SCALE_BLOCK,
    SCALES,
    SWIGLU,
    Epilogue,
    compute_of,
    epilogue_of,
)
from autotune.problem.precision import (
    ELEMENT_TYPES,
    PRECISIONS,
    TENSOR_MAP_TYPES,
    ElementType,
    Precision,
)
from autotune.problem.problem import Problem

__all__ = [
    "ACCUMULATES",
    "COMPUTES",
    "E5M2_OPERANDS",
    "ELEMENTWISE",
    "ELEMENT_TYPES",
    "EPILOGUES",
    "GATE_SPAN",
    "LARGEST_BATCH",
    "LARGEST_DIMENSION",
    "LAYOUTS",
    "OUTPUTS",
    "PRECISIONS",
    "SCALES",
    "SCALE_BLOCK",
    "SWIGLU",
    "TENSOR_MAP_TYPES",
    "ElementType",
    "Epilogue",
    "Precision",
    "Problem",
    "ProblemArguments",
    "ProblemDefaults",
    "ProblemLike",
    "compute_of",
    "distance",
    "epilogue_of",
    "problem_of",
    "problems_of",
]
