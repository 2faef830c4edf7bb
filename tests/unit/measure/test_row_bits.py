"""The comparison of rows of C, bit for bit, on host memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure.measurement import Failure
from autotune.measure.operands import RowBits, shifted
from autotune.measure.runner import Candidate, RowReference
from autotune.problem import Problem

ROWS, COLUMNS, LEADING = 64, 24, 32


class HostOperands:
    """A C of 16-bit numbers with gaps, in host memory."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.memory = np.arange(problem.m * LEADING, dtype=np.uint16).reshape(problem.m, LEADING)
        address = int(self.memory.ctypes.data)
        self.c = SimpleNamespace(address=address, leading_dimension=LEADING)
        self.calls: list[str] = []

    def reserve(self, workspace: int, counters: int) -> None:
        self.calls.append(f"reserve {workspace} {counters}")

    def clear_counters(self) -> None:
        self.calls.append("clear")

    def values(self, alpha: float, beta: float) -> Mapping[str, float]:
        steps = {"lda": 512, "ldc": LEADING, "ldr": 2 * LEADING}
        addresses = {"a": 1 << 20, "b": 1 << 21, "c": self.c.address, "residual": 1 << 22}
        return {**addresses, **steps, "scale_a": 1 << 23, "alpha": alpha, "beta": beta}


class HostSession:
    """Runs a candidate by adding its parameter to the element (3, 7) of its rows."""

    def __init__(self, operands: HostOperands) -> None:
        self._operands = operands

    def bind(self, candidate: Candidate) -> Callable[[Mapping[str, float]], Callable[[], None]]:
        def bound(values: Mapping[str, float]) -> Callable[[], None]:
            first = int(values["c"] - self._operands.c.address) // (2 * LEADING)

            def run() -> None:
                self._operands.memory[first + 3, 7] += int(candidate.config.values["wrong"])

            return run

        return bound

    def download(self, array: Any, address: int) -> None:
        start = address - self._operands.c.address
        held = self._operands.memory.reshape(-1).view(np.uint8)
        array[:] = held[start : start + len(array)]


@pytest.mark.parametrize("first", [0, 16, 48])
@pytest.mark.parametrize("wrong", [0, 1])
def test_row_with_other_bits_is_a_failure(first: int, wrong: int) -> None:
    operands: Any = HostOperands(Problem(ROWS, COLUMNS, 512, "bf16", "nt"))
    session: Any = HostSession(operands)
    config = Config.of("fake", {"wrong": wrong})
    reference = Candidate(config, LaunchPlan(config, (), 8, 2), (), Resources(32, 32, 0))
    failure = RowBits(session, operands).fault(RowReference(first, 16, reference))
    assert operands.calls == ["reserve 8 2", "clear"]
    assert (failure is not None) == bool(wrong)
    if failure is not None:
        rows = (
            f"1 of the 16 rows {first} to {first + 15} have other bits than with m=16 by {config}"
        )
        assert failure == Failure("verify", rows)


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        (Problem(64, 24, 512, "bf16", "nt"), (1024, 64, 128, 0)),
        (Problem(64, 24, 512, "bf16", "tn"), (2, 64, 128, 0)),
        (Problem(64, 24, 512, "f8", "nt", scale="row", output="bf16"), (512, 64, 128, 4)),
    ],
)
def test_rows_start_where_their_operands_do(problem: Problem, steps: tuple[int, ...]) -> None:
    operands: Any = HostOperands(problem)
    before, after = operands.values(1.0, 0.0), shifted(operands, 16)
    names = ("a", "c", "residual", "scale_a")
    assert tuple((after[name] - before[name]) / 16 for name in names) == steps
    assert after["b"] == before["b"]
