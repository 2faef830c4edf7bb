"""A planted vendor library: cuBLAS told of a shorter K."""

from __future__ import annotations

from dataclasses import replace

from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session


def open_short(session: Session, operands: Operands, missing: int = 8) -> Run:
    """A run that leaves out the end of K."""
    less = replace(operands.problem, k=operands.problem.k - missing)
    return session.cublas.gemm(less, operands.values(1.0, 0.0), session.stream)


def open_further(session: Session, operands: Operands) -> list[tuple[str, Run]]:
    """The run as a further baseline."""
    return [("short", open_short(session, operands))]
