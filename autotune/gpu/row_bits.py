"""Rows of C, bit for bit: whether a candidate computes them as a launch of fewer rows does."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cuda.launches import Values
from autotune.gpu.operands import Operands
from autotune.gpu.session import Session
from autotune.runners.base import Candidate, Failure, RowReference

SCALE_BYTES = 4
"""Bytes of the scale of a row."""


class RowBits:
    """Compares rows of the C that the last run left with those of another launch.

    Both read the same operands, at alpha = 1 and beta = 0.
    """

    def __init__(self, session: Session, operands: Operands) -> None:
        self._session, self._operands = session, operands

    def fault(self, reference: RowReference) -> Failure | None:
        """The failure if rows of C differ from the reference's; C has the reference's then."""
        before = self.read(reference.first, reference.rows)
        self.run(reference.candidate, reference.first)
        differing = np.flatnonzero((before != self.read(reference.first, reference.rows)).any(1))
        if not len(differing):
            return None
        rows, last = reference.rows, reference.first + reference.rows - 1
        return Failure(
            "verify",
            f"{len(differing)} of the {rows} rows {reference.first} to {last} have other bits than "
            f"with m={rows} by {reference.candidate.config}",
        )

    def run(self, candidate: Candidate, first: int = 0, alpha: float = 1.0) -> None:
        """Runs a candidate whose rows start at row `first` of the operands."""
        operands, plan = self._operands, candidate.plan
        operands.reserve(plan.workspace, plan.counters)
        operands.clear_counters()
        self._session.bind(candidate)(shifted(operands, first, alpha))()

    def read(self, first: int, rows: int) -> NDArray[Any]:
        """The bytes of rows of the first C, each with the gap behind it."""
        matrix, problem = self._operands.c, self._operands.problem
        row = matrix.leading_dimension * problem.output_bytes
        lines = np.empty((rows, row), np.uint8)
        size = (rows - 1) * row + problem.width * problem.output_bytes
        self._session.download(lines.reshape(-1)[:size], matrix.address + first * row)
        return lines[:, : problem.width * problem.output_bytes]


def shifted(operands: Operands, first: int, alpha: float = 1.0) -> Values:
    """The values of a launch's arguments for the rows of C from `first` on."""
    problem, values = operands.problem, operands.values(alpha, 0.0)
    along_k = problem.layout[0] == "n"
    steps = {
        "a": problem.element_bytes * (values["lda"] if along_k else 1),
        "c": problem.output_bytes * values["ldc"],
        "residual": problem.output_bytes * values["ldr"],
        "scale_a": SCALE_BYTES if problem.scale == "row" else 0,
    }
    moved = {name: values[name] + first * step for name, step in steps.items() if values[name]}
    return {**values, **moved}
