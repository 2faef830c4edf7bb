"""How operands lie in memory, and the problem whose result is C transposed (swap-AB)."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from autotune.problem import Problem

_TURNED = {"n": "t", "t": "n"}


def along_k(problem: Problem, operand: str) -> bool:
    """Whether the rows of `a` or `b` run along K as it is stored."""
    return problem.layout[0] == "n" if operand == "a" else problem.layout[1] == "t"


@lru_cache(maxsize=64)
def transposed(problem: Problem) -> Problem:
    """The problem of C^T = op(B)^T op(A)^T: M and N trade places, and so do A and B."""
    layout = _TURNED[problem.layout[1]] + _TURNED[problem.layout[0]]
    return replace(problem, m=problem.n, n=problem.m, layout=layout)
