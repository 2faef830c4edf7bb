import pytest

from autotune.plan import Alignment, Template
from autotune.problem import Problem


def test_a_template_without_arguments_is_its_own_expression() -> None:
    assert Template("verify.cu", "compare").expression == "compare"


def test_template_arguments_keep_the_order_of_the_source() -> None:
    assert Template("tiled.cu", "tiled", (("W", 16), ("T", 0))).expression == "tiled<16, 0>"


@pytest.mark.parametrize(
    ("leading", "address", "width"),
    [(8, 0, 4), (8, 16, 4), (8, 8, 2), (8, 4, 1), (6, 0, 2), (6, 4, 1), (7, 0, 1)],
)
def test_vectors_are_as_wide_as_address_and_rows_allow(
    leading: int, address: int, width: int
) -> None:
    assert Alignment.of((leading,) * 3, (address,) * 3) == Alignment(width, width, width)


def test_dense_operands_are_aligned_by_their_rows() -> None:
    assert Alignment.dense(Problem(5, 6, 8)) == Alignment(a=4, b=2, c=2)


@pytest.mark.parametrize(("stride", "width"), [(0, 4), (64, 4), (62, 2), (61, 1)])
def test_matrices_of_a_batch_are_aligned_by_their_stride(stride: int, width: int) -> None:
    alignment = Alignment.of((8,) * 3, (0,) * 3, strides=(stride,) * 3)
    assert alignment == Alignment(width, width, width)


def test_only_a_batch_counts_the_strides_of_dense_operands() -> None:
    odd = Problem(1, 4, 3)  # B 3 x 4 and C 1 x 4 lie in fours, A is 3 wide
    assert Alignment.dense(odd) == Alignment(a=1, b=4, c=4)
    assert Alignment.dense(Problem(3, 2, 5, "f32", "tn", batch=2)) == Alignment(a=1, b=2, c=2)
