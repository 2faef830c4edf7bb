"""Operands without elements, on the fake GPU: empty results, and sums without a summand."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_frameworks import FakeTorch
from support.runtime_case import Case

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.settings import Policy


@pytest.mark.parametrize(
    "shapes",
    [
        ((0, 3), (3, 7), (0, 7)),
        ((5, 3), (3, 0), (5, 0)),
        ((0, 0), (0, 0), (0, 0)),
        ((0, 5, 3), (3, 7), (0, 5, 7)),
        ((0, 5, 3), (1, 3, 7), (0, 5, 7)),
        ((2, 0, 5, 3), (2, 1, 3, 7), (2, 0, 5, 7)),
    ],
    ids=str,
)
def test_empty_results_launch_nothing(case: Case, shapes: Any) -> None:
    a, b, out = (case.array(*shape) for shape in shapes)
    for _ in range(2):
        assert case.matmul(a, b, out, policy=Policy(verify=True)) is out
    assert (case.cuda.launches, case.looked_up) == ([], [])


def test_empty_result_is_allocated(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cuda:0", case.matrix(*shape)) for shape in ((2, 0, 3), (3, 7)))
    out: Any = case.matmul(a, b, bias=torch.on("cuda:0", case.matrix(7)), activation="gelu")
    assert out.shape == (2, 0, 7)


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((0, 3), (4, 7), (0, 7)), "A (0, 3) times B (4, 7): the inner sizes 3 and 4 differ"),
        (((5, 0), (3, 7), (5, 7)), "A (5, 0) times B (3, 7): the inner sizes 0 and 3 differ"),
        (((0, 3), (3, 7), (0, 6)), "out is (0, 6); the product is (0, 7)"),
        (((0, 5, 3), (2, 3, 7), (0, 5, 7)), "A (0, 5, 3) times B (2, 3, 7): the batches 0 and 2"),
    ],
    ids=str,
)
def test_empty_operands_must_fit_each_other(case: Case, shapes: Any, message: str) -> None:
    assert case.refused(*(case.array(*shape) for shape in shapes)).startswith(message)


def test_types_of_empty_operands_are_checked(case: Case) -> None:
    a, b = case.array(0, 3, dtype="float16"), case.array(3, 7)
    assert case.refused(a, b, case.array(0, 7)) == "A is float16, B float32; convert one of them"


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)], ids=str)
def test_sums_without_a_summand_are_refused(case: Case, batch: tuple[int, ...]) -> None:
    a, b, out = (case.array(*batch, *shape) for shape in ((5, 0), (0, 7), (5, 7)))
    assert "with an inner size of 0 there is nothing to sum" in case.refused(a, b, out)
    assert case.looked_up == []


def test_tuning_passes_empty_operands_over(case: Case) -> None:
    tuned: list[Problem] = []
    for shapes in (((0, 3), (3, 7)), ((5, 0), (0, 7))):
        a, b = (case.array(*shape) for shape in shapes)
        case.matmul.tune(a, b, lambda problem, _: tuned.append(problem))
    assert tuned == []


@pytest.mark.parametrize("shapes", [((0, 3), (3, 7)), ((1, 0), (0, 7))], ids=str)
def test_kernel_of_a_problem_refuses_empty_operands(case: Case, shapes: Any) -> None:
    kernel = Kernel(case.runtime, Problem(1, 7, 1), 0)
    a, b = (case.array(*shape) for shape in shapes)
    message = rf"A is \({shapes[0][0]}, {shapes[0][1]}\), .*; this kernel is for 1x7x1:f32:nn"
    with pytest.raises(ArrayError, match=message):
        kernel(a, b, case.array(shapes[0][0], 7))
