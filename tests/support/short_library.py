"""A planted vendor library: cuBLAS told of a shorter K."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from autotune.measure.cublas import Cublas
from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session


def open_short(session: Session, operands: Operands, missing: int = 8) -> Run:
    """A run that leaves out the end of K."""
    less = replace(operands.problem, k=operands.problem.k - missing)
    seen: Any = SimpleNamespace(
        problem=less,
        leading_dimensions=operands.leading_dimensions,
        strides=operands.strides,
        **{name: getattr(operands, name) for name in "abc"},
    )
    return Cublas.load().gemm(seen, session.stream)


def open_further(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """The run as a further baseline."""
    return [("short", open_short(session, operands))]
