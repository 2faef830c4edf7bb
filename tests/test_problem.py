from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import ProblemError
from autotune.problem import COMPUTES, LARGEST_DIMENSION, LAYOUTS, Problem

sizes = st.integers(1, LARGEST_DIMENSION)


@given(sizes, sizes, sizes, st.sampled_from(COMPUTES), st.sampled_from(LAYOUTS))
def test_text_form_reads_back(m: int, n: int, k: int, compute: str, layout: str) -> None:
    problem = Problem(m, n, k, compute, layout)
    assert Problem.parse(str(problem)) == problem


def test_a_bare_shape_takes_the_given_compute_and_layout() -> None:
    assert Problem.parse("2x3x4", compute="f32", layout="tn") == Problem(2, 3, 4, "f32", "tn")


def test_what_the_text_says_goes_before_what_is_given() -> None:
    assert Problem.parse("2x3x4:f32:nt", layout="tn").layout == "nt"


@pytest.mark.parametrize(
    "text", ["", "4096", "4096x4096", "4x4x4x4", "4 x4x4", "axbxc", "4x4x4:f32:nn:x", "4x4x4.0"]
)
def test_a_malformed_shape_is_named_with_an_example(text: str) -> None:
    with pytest.raises(ProblemError, match="give MxNxK, such as 4096x4096x4096"):
        Problem.parse(text)


@pytest.mark.parametrize(
    ("text", "name"), [("0x4x4", "M"), ("4x-1x4", "N"), ("4x4x2147483648", "K")]
)
def test_a_size_out_of_range_is_named_with_the_range(text: str, name: str) -> None:
    with pytest.raises(ProblemError, match=f"^{name} is .*; give 1 to 2147483647$"):
        Problem.parse(text)


@pytest.mark.parametrize("size", [4.0, True, "4", None])
def test_a_size_of_another_type_is_refused(size: object) -> None:
    with pytest.raises(ProblemError, match="whole number"):
        Problem(4, size, 4)  # type: ignore[arg-type]


def test_sizes_of_numpy_become_plain_numbers() -> None:
    sizes = [type(size) for size in astuple(Problem(*np.array([2, 3, 4])))[:3]]
    assert sizes == [int, int, int]


def test_an_unknown_compute_lists_the_known_ones() -> None:
    with pytest.raises(ProblemError, match="unknown compute 'f8'; give one of f32"):
        Problem(4, 4, 4, "f8")


def test_an_unknown_layout_lists_the_known_ones() -> None:
    with pytest.raises(ProblemError, match="unknown layout 'xx'; give one of nn, nt, tn, tt"):
        Problem(4, 4, 4, "f32", "xx")


def test_operations_count_multiply_and_add() -> None:
    assert Problem(2, 3, 4).flops == 48


def test_least_traffic_reads_each_operand_once_and_writes_the_result_once() -> None:
    assert Problem(2, 3, 4).bytes == 4 * (2 * 4 + 4 * 3 + 2 * 3)


@pytest.mark.parametrize(
    ("layout", "lds"), [("nn", (4, 3, 3)), ("nt", (4, 4, 3)), ("tn", (2, 3, 3)), ("tt", (2, 4, 3))]
)
def test_leading_dimensions_are_the_stored_rows(layout: str, lds: tuple[int, int, int]) -> None:
    assert Problem(2, 3, 4, layout=layout).leading_dimensions == lds
