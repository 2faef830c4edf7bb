"""Planted faults are caught in every precision, before a kernel is recorded.

`AUTOTUNE_PLANTS` is the number of plants of each fault and precision; a file named by
`AUTOTUNE_PLANTS_FILE` gets a line of JSON for each pair.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from planted_kernels import FAULTS, SCALE_FAULTS, planted

from autotune.measure.bench import GemmBench
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate
from autotune.measure.session import Session
from autotune.problem import PRECISIONS, Problem

PLANTS = int(os.environ.get("AUTOTUNE_PLANTS", "8"))
SHARE = 0.99
"""Share of plants that have to be caught; a race may hide in all launches there are."""

SHAPES = ((128, 96, 512), (33, 65, 4097), (300, 200, 64), (257, 129, 1000))
LONG = {"a term missing everywhere": ((16, 16, 1_000_000),), "zeros": ((1, 1, 9_000_000),)}
"""Shapes of faults that hide in long sums."""
PAIRS = [
    (fault, name)
    for name, row in PRECISIONS.items()
    for fault in (*FAULTS[1:], *(SCALE_FAULTS if row.eight_bit else ()))
]
"""Faults and the precisions in which they are planted."""


def posed(shape: tuple[int, int, int], compute: str) -> Problem:
    """The problem of a shape; operands of 8 bits have a scale a row."""
    scale = "row" if PRECISIONS[compute].eight_bit else "none"
    return Problem(*shape, compute, scale=scale)


def failures(bench: GemmBench, candidate: Candidate) -> Iterator[tuple[str, Failure]]:
    """The checks that a candidate fails on its way to a record, one after the other."""
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("trial", lambda: bench.verify(candidate)),
        ("rematch", lambda: bench.rematch([candidate], with_baseline=False)[0][0]),
        ("winner", lambda: bench.examine(candidate)),
    )
    for name, check in checks:
        if isinstance(outcome := check(), Failure):
            yield name, outcome


def caught(bench: GemmBench, candidate: Candidate) -> str | None:
    """The first check that a candidate fails; None if it fails none."""
    return next((name for name, _ in failures(bench, candidate)), None)


@pytest.mark.parametrize(("fault", "compute"), PAIRS)
def test_planted_fault_is_caught(
    session: Session, programs: Path, fault: str, compute: str
) -> None:
    shapes, random = LONG.get(fault, SHAPES), Random(f"{fault} {compute}")
    counts = Counter[str | None]()
    for number, shape in enumerate(shapes):
        problem = posed(shape, compute)
        bench = GemmBench(session, problem, cache=programs)
        for _ in range(number, PLANTS, len(shapes)):
            kernel = planted(fault, problem, bench.device, programs, random)
            counts[caught(bench, kernel)] += 1
    missed = counts.pop(None, 0)
    if file := os.environ.get("AUTOTUNE_PLANTS_FILE"):
        with Path(file).open("a") as lines:
            row = {"fault": fault, "compute": compute, "missed": missed, **counts}
            lines.write(json.dumps(row) + "\n")
    assert missed <= (1 - SHARE) * PLANTS, counts


@pytest.mark.parametrize("compute", PRECISIONS)
@pytest.mark.parametrize("shape", [*SHAPES, *(shape for (shape,) in LONG.values())], ids=str)
def test_kernel_without_a_fault_is_recorded(
    session: Session, programs: Path, shape: tuple[int, int, int], compute: str
) -> None:
    problem = posed(shape, compute)
    bench = GemmBench(session, problem, cache=programs)
    for seed in range(3):
        kernel = planted("none", problem, bench.device, programs, Random(seed))
        assert [*failures(bench, kernel)] == []
