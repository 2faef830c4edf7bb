"""The quick mode: the first product of a shape without a record is raced, never in a capture."""

from __future__ import annotations

from typing import Any

import pytest
from support.logged import logs
from support.runtime_case import Case

from autotune.device import Device
from autotune.errors import MissingError
from autotune.measure.objective import Objective
from autotune.problem import Problem
from autotune.runtime.state import UntunedWarning
from autotune.settings import Policy

Raced = list[tuple[str, Objective]]


@pytest.fixture
def case() -> Case:
    case = Case()
    case.cuda.make_context()
    return case


@pytest.fixture
def raced(case: Case) -> Raced:
    """The races of a case, in their order."""
    races: Raced = []

    def racer(problem: Problem, device: Device, objective: Objective) -> None:
        assert device == case.runtime.gpu(0).device
        assert not case.looked_up  # the race comes before the look-up
        races.append((str(problem), objective))

    case.matmul.racer = racer
    return races


def test_first_product_of_a_shape_is_raced_once(case: Case, raced: Raced) -> None:
    operands: Any = case.operands(5, 7, 3)
    case.matmul(*operands)
    case.matmul(*case.operands(5, 7, 3))
    assert raced == [("5x7x3:f32:nn", "hot")]
    assert len(case.cuda.launches) == 2


def test_cold_product_is_raced_for_its_time(case: Case, raced: Raced) -> None:
    case.matmul(*case.operands(5, 7, 3), policy=Policy(cold=True))
    assert raced == [("5x7x3:f32:nn", "cold")]


def test_captured_product_is_not_raced(case: Case, raced: Raced) -> None:
    case.cuda.captures[0] = 1
    case.matmul(*case.operands(5, 7, 3))
    assert raced == []


def test_product_runs_although_it_cannot_be_raced(case: Case) -> None:
    def racer(*_: object) -> None:
        raise MissingError("no PyCUDA")

    case.matmul.racer = racer
    with logs("5x7x3:f32:nn is not tuned: no PyCUDA"):
        case.matmul(*case.operands(5, 7, 3))
    assert len(case.cuda.launches) == 1


def test_matmul_without_a_racer_tunes_nothing(case: Case) -> None:
    case.how = "nearest"
    with pytest.warns(UntunedWarning):
        case.matmul(*case.operands(5, 7, 3))
