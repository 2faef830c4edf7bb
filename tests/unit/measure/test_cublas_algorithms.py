"""cuBLASLt's algorithms as baselines, on host memory and with a fake library."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fake_cublaslt import STREAM, operands_of
from support.fake_session import Memory

from autotune.measure.cublas import open_algorithms
from autotune.problem import Problem

SHAPE = Problem(5, 7, 3)


@pytest.fixture
def baselines(_fake_cublaslt: None) -> Callable[[Any], list[tuple[str, Callable[[], None]]]]:
    session: Any = SimpleNamespace(stream=STREAM, allocate=Memory)
    return lambda operands: open_algorithms(session, operands)


@pytest.mark.parametrize("which", [0, 1])
def test_each_result_computes_the_gemm(baselines: Callable[[Any], Any], which: int) -> None:
    operands = operands_of(SHAPE)
    _, run = baselines(operands)[which]
    run()
    expected = operands.a.matrix @ operands.b.matrix
    np.testing.assert_allclose(operands.c.matrix, expected, rtol=1e-5, atol=1e-6)


def test_results_are_ranked_without_unusable_ones(baselines: Callable[[Any], Any]) -> None:
    assert [name for name, _ in baselines(operands_of(SHAPE))] == ["cuBLASLt 1", "cuBLASLt 2"]


@pytest.mark.parametrize("changed", [{"batch": 2}, {"epilogue": "relu"}])
def test_batches_and_epilogues_have_no_baselines(
    baselines: Callable[[Any], Any], changed: dict[str, Any]
) -> None:
    assert baselines(operands_of(replace(SHAPE, **changed))) == []
