"""The problem: a GEMM's shape, precision, layout, batch and epilogue."""

from __future__ import annotations

from autotune.problem.arguments import (
    ProblemArguments,
    ProblemDefaults,
    ProblemLike,
    problem_of,
    problems_of,
)
from autotune.problem.distance import distance
from autotune.problem.element import ELEMENT_TYPES, TENSOR_MAP_TYPES, ElementType
from autotune.problem.epilogue import (
    ELEMENTWISE,
    EPILOGUES,
    GATE_SPAN,
    SWIGLU,
    Epilogue,
    epilogue_of,
)
from autotune.problem.fields import (
    ACCUMULATES,
    COMPUTES,
    E5M2_OPERANDS,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    LAYOUTS,
    OUTPUTS,
    SCALE_BLOCK,
    SCALES,
    compute_of,
)
from autotune.problem.precision import PRECISIONS, Precision
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
