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
