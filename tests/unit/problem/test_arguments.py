"""Every way in which public functions take a problem."""

from typing import Any

import pytest

from autotune.errors import ProblemError
from autotune.problem import Problem, problem_of, problems_of

BF16 = Problem(2, 3, 4, "bf16", "nt")


@pytest.mark.parametrize(
    ("problem", "arguments"),
    [
        (("2x3x4:bf16:nt",), {}),
        ((BF16,), {}),
        (((2, 3, 4),), {"compute": "bf16", "layout": "nt"}),
        (([2, 3, 4],), {"compute": "bf16", "layout": "nt"}),
        ((2, 3, 4), {"compute": "bf16", "layout": "nt"}),
        ((2, 3), {"k": 4, "compute": "bf16", "layout": "nt"}),
        ((), {"m": 2, "n": 3, "k": 4, "compute": "bf16", "layout": "nt"}),
        (("2x3x4:bf16",), {"layout": "nt"}),
        (("2x3x4:bf16:nt",), {"compute": "bf16", "batch": 1}),
        ((BF16,), {"compute": "bf16", "output": "same"}),
    ],
)
def test_problem_is_text_sizes_or_a_problem(problem: Any, arguments: Any) -> None:
    assert problem_of(*problem, **arguments) == BF16


@pytest.mark.parametrize(
    ("problem", "arguments", "message"),
    [
        ("2x3x4:bf16", {"compute": "f16"}, "2x3x4:bf16 has compute bf16, the argument compute is"),
        ("2x3x4:batch=8", {"batch": 2}, "has batch 8, the argument batch is 2; leave one out"),
        (BF16, {"layout": "nn"}, "has layout nt, the argument layout is nn; leave one out"),
        (BF16, {"compute": "f32"}, "has compute bf16, the argument compute is f32"),
        (BF16, {"compute": "f64"}, "unknown compute 'f64'"),
        ("2x3x4:bf16", {"accuracy": "near"}, "accuracy near is for compute f32, not bf16"),
    ],
)
def test_contradicting_argument_is_refused(problem: Any, arguments: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        problem_of(problem, **arguments)


@pytest.mark.parametrize("problem", ["2x3x4", "2x3x4:f32", Problem(2, 3, 4), (2, 3, 4)])
def test_near_accuracy_applies_to_every_form(problem: Any) -> None:
    assert problem_of(problem, accuracy="near").compute == "tf32x3"


def test_redundant_fp32_output_is_accepted() -> None:
    assert problem_of("2x3x4", output="f32") == Problem(2, 3, 4)


@pytest.mark.parametrize("problem", [(), (2,), (2, 3), (2, 3, 4, 5), ("2x3x4", 3, 4), (BF16, 1)])
def test_wrong_number_of_sizes_is_refused(problem: Any) -> None:
    with pytest.raises(ProblemError, match=r"give one problem: .* or m, n, k|give a whole number"):
        problem_of(*problem)


def test_repeated_size_is_refused() -> None:
    with pytest.raises(ProblemError, match="give one problem"):
        problem_of(2, 3, 4, m=2)


def test_unknown_keyword_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="trails"):
        problem_of(2, 3, 4, trails=5)  # type: ignore[call-arg]


def test_keywords_of_a_list_are_defaults() -> None:
    shapes: list[Any] = ["2x3x4:bf16", (2, 3, 4), BF16, "2x3x4:f32"]
    assert problems_of(shapes, layout="tn", accuracy="near") == [
        Problem(2, 3, 4, "bf16", "tn"),
        Problem(2, 3, 4, "tf32x3", "tn"),
        BF16,
        Problem(2, 3, 4, "f32", "tn"),
    ]


def test_near_takes_other_spellings_of_fp32() -> None:
    assert problem_of("8x8x8", compute="FP32", accuracy="near").compute == "tf32x3"
    (near,) = problems_of(["8x8x8"], compute="float32", accuracy="near")
    assert near.compute == "tf32x3"
