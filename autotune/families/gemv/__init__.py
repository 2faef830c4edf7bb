"""GEMV and skinny GEMM: one pass over the larger operand, for few rows or columns of C."""

from autotune.families.gemv.family import GEMV

FAMILIES = (GEMV,)
