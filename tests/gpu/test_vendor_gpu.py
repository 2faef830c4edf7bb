"""The vendor library's result is verified before it is timed: a product short of K is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.measure.bench import GemmBench
from autotune.measure.cublas import Cublas
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.operands import Operands
from autotune.measure.session import Run, Session
from autotune.problem import PRECISIONS, Problem

DEEP = (64, 96, 4128)
"""A shape for split-K whose K is not a multiple of a block of 64, but of what fp8 needs."""
SHAPES = (DEEP, (128, 96, 512), (1, 2048, 2048))


@pytest.mark.parametrize("compute", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_right_result_of_the_library_passes(
    session: Session, programs: Path, shape: tuple[int, int, int], compute: str
) -> None:
    row = PRECISIONS[compute]
    if session.device.compute_capability < row.compute_capability:
        pytest.skip(f"no {compute} on {session.device.name}")
    problem = Problem(*shape, compute, "nt", scale="row" if row.eight_bit else "none")
    outcome = GemmBench(session, problem, cache=programs).baseline()
    if outcome is None:
        pytest.skip("neither PyTorch nor cuBLAS computes it")
    assert isinstance(outcome, Measurement), outcome


@pytest.mark.parametrize("compute", ["f32", "tf32", "f16", "bf16"])
@pytest.mark.parametrize("missing", [1, 32])
def test_result_without_the_tail_of_k_is_refused(
    session: Session, programs: Path, compute: str, missing: int
) -> None:
    def short(session: Session, operands: Operands) -> Run:
        less = replace(operands.problem, k=operands.problem.k - missing)
        seen: Any = SimpleNamespace(
            problem=less,
            leading_dimensions=operands.leading_dimensions,
            strides=operands.strides,
            **{name: getattr(operands, name) for name in "abc"},
        )
        return Cublas.load().gemm(seen, session.stream)

    problem = Problem(*DEEP, compute, "nt")
    bench = GemmBench(session, problem, cache=programs, opener=short)
    outcome = bench.baseline()
    assert isinstance(outcome, Failure)
    assert outcome.reason.startswith("wrong result for small integers: largest error")
    outcomes, baseline = bench.rematch([], with_baseline=True)
    assert (outcomes, type(baseline)) == ([], Failure)
