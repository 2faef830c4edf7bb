"""How operands lie in memory, and the problem whose result is C transposed (swap-AB)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from autotune.problem import Problem

_TURNED = {"n": "t", "t": "n"}
_EXCHANGED = {"a": "b", "b": "a", "ab": "ab"}


def along_k(problem: Problem, operand: str) -> bool:
    """Whether the rows of `a` or `b` run along K as it is stored."""
    return problem.layout[0] == "n" if operand == "a" else problem.layout[1] == "t"


@lru_cache(maxsize=64)
def transposed(problem: Problem) -> Problem:
    """The problem of C^T = op(B)^T op(A)^T: M and N trade places, and so do A and B.

    It has no SwiGLU: the pairs of columns become rows.
    """
    layout = _TURNED[problem.layout[1]] + _TURNED[problem.layout[0]]
    mixed = problem.precision.second is not None
    e5m2 = _EXCHANGED[problem.e5m2] if mixed else problem.e5m2
    epilogue = "none" if problem.gated else problem.epilogue
    return replace(problem, m=problem.n, n=problem.m, layout=layout, e5m2=e5m2, epilogue=epilogue)
