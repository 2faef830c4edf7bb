"""Templates, alignments and tensor maps of plans."""

from typing import Any

import pytest

from autotune.families.plan import Alignment, Template, TensorMap
from autotune.problem import Problem


def test_template_without_arguments_is_its_name() -> None:
    assert Template("verify.cu", "compare").expression == "compare"


def test_template_arguments_keep_their_order() -> None:
    assert Template("tiled.cu", "tiled", (("W", 16), ("T", 0))).expression == "tiled<16, 0>"


@pytest.mark.parametrize(
    ("leading", "address", "width"),
    [(8, 0, 4), (8, 16, 4), (8, 8, 2), (8, 4, 1), (6, 0, 2), (6, 4, 1), (7, 0, 1)],
)
def test_alignment_follows_from_address_and_rows(leading: int, address: int, width: int) -> None:
    assert Alignment.of((leading,) * 3, (address,) * 3) == Alignment(width, width, width)


@pytest.mark.parametrize(
    ("leading", "address", "width"),
    [(8, 0, 8), (8, 8, 4), (8, 2, 1), (4, 16, 4), (10, 32, 2), (4093, 0, 1)],
)
def test_vectors_of_16_bit_elements_have_up_to_8(leading: int, address: int, width: int) -> None:
    alignment = Alignment.of((leading,) * 3, (address,) * 3, sizes=(2, 2, 2))
    assert alignment == Alignment(width, width, width)


def test_alignment_uses_each_operands_element_size() -> None:
    assert Alignment.of((8, 8, 8), (0, 0, 0), sizes=(2, 2, 4)) == Alignment(a=8, b=8, c=4)


def test_dense_alignment_uses_the_problems_types() -> None:
    assert Alignment.dense(Problem(8, 8, 8, "bf16")) == Alignment(8, 8, 8)
    assert Alignment.dense(Problem(8, 8, 8, "f16", output="f32")) == Alignment(8, 8, 4)


@pytest.mark.parametrize(("name", "size"), [("f32", 4), ("tf32", 4), ("f16", 2), ("bf16", 2)])
def test_tensor_map_knows_its_element_size(name: Any, size: int) -> None:
    tensor_map = TensorMap("a", 0, name, 64, 64, 1, "lda", "stride_a", (32, 32), 128)
    assert tensor_map.element_bytes == size


def test_specific_code_is_a_template_of_its_own() -> None:
    general, specific = (Template("x.cu", "x", (("W", 8),), flag) for flag in (False, True))
    assert general.expression == specific.expression
    assert general != specific


def test_dense_operands_are_aligned_by_their_rows() -> None:
    assert Alignment.dense(Problem(5, 6, 8)) == Alignment(a=4, b=2, c=2)


@pytest.mark.parametrize(("stride", "width"), [(0, 4), (64, 4), (62, 2), (61, 1)])
def test_alignment_of_a_batch_follows_its_stride(stride: int, width: int) -> None:
    alignment = Alignment.of((8,) * 3, (0,) * 3, strides=(stride,) * 3)
    assert alignment == Alignment(width, width, width)


def test_dense_strides_count_in_batches_only() -> None:
    odd = Problem(1, 4, 3)  # rows of B and C have 4 elements, rows of A 3
    assert Alignment.dense(odd) == Alignment(a=1, b=4, c=4)
    assert Alignment.dense(Problem(3, 2, 5, "f32", "tn", batch=2)) == Alignment(a=1, b=2, c=2)
