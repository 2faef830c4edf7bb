"""The problem: a GEMM's shape, precision, layout, batch and epilogue."""

from __future__ import annotations

from autotune.problem.arguments import (
    ProblemArguments,
    ProblemDefaults,
    ProblemLike,
    problem_of,
    problems_of,
)
from autotune.problem.fields import (
    COMPUTES,
    EPILOGUES,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    LAYOUTS,
    OUTPUTS,
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
from autotune.problem.problem import Problem, distance

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
    "ProblemArguments",
    "ProblemDefaults",
    "ProblemLike",
    "compute_of",
    "distance",
    "epilogue_of",
    "problem_of",
    "problems_of",
]
