"""Words that people type for dtypes and shapes, and single values where a list is meant."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.api.shapes import Shapes
from autotune.device import find
from autotune.errors import ProblemError, UsageError
from autotune.problem import COMPUTES, Problem, compute_of, problem_of, problems_of
from autotune.problem.arguments import Span
from autotune.problem.words import canonical, precision_of


class dtype:
    """A dtype of PyTorch, which has neither a name nor a type of Python."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"torch.{self._name}"


DTYPES = [
    (dtype("bfloat16"), "bf16"),
    (dtype("float16"), "f16"),
    (dtype("float8_e4m3fn"), "f8"),
    (dtype("float8_e5m2"), "f8e5"),
    (dtype("int8"), "i8"),
    (np.float16, "f16"),
    (np.float32, "f32"),
    (np.dtype("int8"), "i8"),
    (np.dtype("<f4"), "f32"),
    ("fp16", "f16"),
    ("half", "f16"),
    ("float", "f32"),
    ("BFloat16", "bf16"),
    ("torch.bfloat16", "bf16"),
    ("np.float16", "f16"),
    ("float8_e4m3fn", "f8"),
    ("e5m2", "f8e5"),
    ("fp8", "f8"),
]


@pytest.mark.parametrize(("word", "compute"), DTYPES, ids=repr)
def test_dtype_of_any_library_is_a_compute(word: Any, compute: str) -> None:
    assert canonical("compute", word, COMPUTES) == compute
    assert Problem(16, 16, 16, word) == Problem(16, 16, 16, compute)
    assert problem_of("16x16x16", compute=word).compute == compute
    assert problems_of([(16, 16, 16)], compute=word) == [Problem(16, 16, 16, compute)]
    assert find("h100").peak(word) == find("h100").peak(compute)


@pytest.mark.parametrize("word", [word for word, _ in DTYPES], ids=repr)
def test_text_of_a_problem_takes_the_text_of_a_dtype(word: Any) -> None:
    if isinstance(word, str | dtype):
        made = Problem.parse(f"16x16x16:{word}")
        assert made.compute == precision_of(word).name


@pytest.mark.parametrize(
    ("word", "output"),
    [(dtype("float32"), "f32"), (np.float32, "f32"), ("torch.float32", "f32"), ("half", "f16")],
    ids=repr,
)
def test_dtype_of_any_library_is_an_output(word: Any, output: str) -> None:
    asked = Problem(16, 16, 16, "f8", output=output)
    assert Problem(16, 16, 16, "f8", output=word) == asked
    assert Problem.parse("16x16x16:f8", output=word) == asked


def test_text_states_an_output_by_its_dtype() -> None:
    assert Problem.parse("16x16x16:f8:out=torch.float32").output == "f32"


@pytest.mark.parametrize("word", [3, 2.5, None, [1], np.float64, dtype("int64"), "float128", True])
def test_what_is_no_precision_is_refused(word: Any) -> None:
    with pytest.raises(ProblemError, match=r"unknown compute .*; give one of f32, tf32, tf32x3"):
        Problem(16, 16, 16, word)
    with pytest.raises(ProblemError, match=r"unknown compute .*; give one of f32, tf32, tf32x3"):
        find("h100").peak(word)


def test_near_accuracy_takes_a_dtype() -> None:
    assert compute_of(np.float32, "near") == "tf32x3"
    with pytest.raises(ProblemError, match="near is for compute f32, not bf16"):
        compute_of(dtype("bfloat16"), "near")


@pytest.mark.parametrize(
    "text",
    [
        *("4096x512x64", "4096X512X64", "4096×512×64", "4096 512 64", "4096,512,64"),
        *("4096, 512, 64", "4096 x 512 x 64", "4096*512*64", " 4096  512\t64 "),
    ],
)
def test_shape_is_written_in_several_ways(text: str) -> None:
    assert Problem.parse(text) == Problem(4096, 512, 64)
    assert Problem.parse(f"{text}:bf16:nt") == Problem(4096, 512, 64, "bf16", "nt")


@pytest.mark.parametrize("sizes", [(4096, 512, 64), [4096, 512, 64], np.array([4096, 512, 64])])
def test_shape_is_any_series_of_three_sizes(sizes: Any) -> None:
    assert problem_of(sizes) == Problem(4096, 512, 64)


@pytest.mark.parametrize("text", ["1 23", "4096x512 64", "4096,512x64", "1 2 3 4", "1x2", "1,,2"])
def test_shape_has_three_sizes_and_one_separator(text: str) -> None:
    with pytest.raises(ProblemError, match="malformed shape"):
        Problem.parse(text)


@pytest.mark.parametrize("text", ["1..512 4096 4096", "1..512×4096×4096", "1..512, 4096, 4096"])
def test_range_takes_the_same_separators(text: str) -> None:
    assert Span.parse(text) == Span.parse("1..512x4096x4096")


@pytest.mark.parametrize("shapes", ["64x64x64", Problem(64, 64, 64)])
@pytest.mark.parametrize("door", [problems_of, Shapes.of])
def test_one_shape_in_place_of_a_list_is_refused(shapes: Any, door: Any) -> None:
    with pytest.raises(UsageError, match=r"^shapes is '64.*'; give a list: \['64.*'\]$"):
        door(shapes)


def test_sizes_in_place_of_a_list_of_shapes_are_refused() -> None:
    shapes: Any = (64, 64, 64)
    with pytest.raises(ProblemError, match="a shape is 64; give one such as 4096x4096x4096"):
        problems_of(shapes)
