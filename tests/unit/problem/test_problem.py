"""Problems: their text, their fields, and what follows from them."""

from __future__ import annotations

from dataclasses import astuple, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune.errors import ProblemError
from autotune.problem import (
    ACCUMULATES,
    COMPUTES,
    E5M2_OPERANDS,
    ELEMENTWISE,
    EPILOGUES,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    LAYOUTS,
    PRECISIONS,
    Problem,
    compute_of,
    distance,
    epilogue_of,
)
from autotune.problem.integers import ceil_div, round_up

sizes = st.integers(1, LARGEST_DIMENSION)


@st.composite
def drawn(draw: st.DrawFn) -> Problem:
    """Any problem, with each of the fields that its precision has."""
    row = PRECISIONS[draw(st.sampled_from(COMPUTES))]
    output = draw(st.sampled_from(["same", *(element.name for element in row.outputs)]))
    bare = output == "i32"
    epilogues = EPILOGUES if row.operand.bytes <= 2 else ELEMENTWISE
    if output in ("e4m3", "e5m2"):
        epilogues = tuple(word for word in EPILOGUES if "residual" not in word)
    epilogue = "none" if bare else draw(st.sampled_from(epilogues))
    n = draw(sizes)
    return Problem(
        *(draw(sizes), n // 16 * 16 or 16 if epilogue == "swiglu" else n, draw(sizes)),
        row.name,
        draw(st.sampled_from(LAYOUTS)),
        draw(st.integers(1, LARGEST_BATCH)),
        epilogue,
        output,
        "none" if bare else draw(st.sampled_from(row.scales)),
        draw(st.sampled_from(ACCUMULATES if row.fast_sum_error else ("exact",))),
        draw(st.sampled_from(E5M2_OPERANDS if row.second else ("a",))),
    )


problems = drawn()


@given(problems)
def test_text_form_round_trips(problem: Problem) -> None:
    assert Problem.parse(str(problem)) == problem


@given(problems)
def test_slug_is_the_text_without_colons(problem: Problem) -> None:
    assert problem.slug.replace("-", ":") == str(problem)


@pytest.mark.parametrize(
    ("problem", "text"),
    [
        (Problem(2, 3, 4), "2x3x4:f32:nn"),
        (Problem(2, 3, 4, batch=8), "2x3x4:f32:nn:batch=8"),
        (Problem(2, 3, 4, layout="nt", epilogue="relu"), "2x3x4:f32:nt:relu"),
        (Problem(2, 3, 4, batch=8, epilogue="bias_gelu"), "2x3x4:f32:nn:batch=8:bias_gelu"),
        (Problem(2, 3, 4, "bf16", output="f32"), "2x3x4:bf16:nn:out=f32"),
        (Problem(2, 3, 4, "f16", "tt", 8, "relu", "f32"), "2x3x4:f16:tt:batch=8:relu:out=f32"),
        (Problem(2, 3, 4, "tf32x3"), "2x3x4:tf32x3:nn"),
        (Problem(2, 3, 4, "f8", "nt", scale="row"), "2x3x4:f8:nt:scale=row"),
        (Problem(2, 3, 4, "f8", output="bf16"), "2x3x4:f8:nn"),
        (
            Problem(2, 3, 4, "f8e5", "nt", 8, "relu", "f16", "block", "fast", "b"),
            "2x3x4:f8e5:nt:batch=8:relu:scale=block:fast:e5m2=b:out=f16",
        ),
        (Problem(2, 3, 4, "i8", output="i32"), "2x3x4:i8:nn:out=i32"),
    ],
)
def test_text_omits_fields_at_their_defaults(problem: Problem, text: str) -> None:
    assert str(problem) == text


def test_text_takes_its_fields_in_any_order() -> None:
    parsed = Problem.parse("2x3x4:out=f32:bias_relu:tn:batch=8:f16")
    assert parsed == Problem(2, 3, 4, "f16", "tn", 8, "bias_relu", "f32")


def test_text_that_contradicts_itself_is_refused() -> None:
    with pytest.raises(ProblemError, match="'4x4x4:nn:tn' says nn and tn; give one layout"):
        Problem.parse("4x4x4:nn:tn")


@pytest.mark.parametrize("part", ["x", "f64", "batch", "batch=", "batch=2.5", "out=", "same", ""])
def test_unknown_field_lists_the_legal_ones(part: str) -> None:
    with pytest.raises(ProblemError, match=f"unknown '{part}' after the shape; give f32, .*=f32"):
        Problem.parse(f"4x4x4:{part}")


def test_shape_takes_compute_and_layout_from_keywords() -> None:
    assert Problem.parse("2x3x4", compute="f32", layout="tn") == Problem(2, 3, 4, "f32", "tn")


def test_shape_takes_batch_and_epilogue_from_keywords() -> None:
    assert Problem.parse("2x3x4", batch=8, epilogue="gelu") == Problem(
        2, 3, 4, batch=8, epilogue="gelu"
    )


def test_text_overrides_the_defaults() -> None:
    assert Problem.parse("2x3x4:f32:nt", layout="tn").layout == "nt"


@pytest.mark.parametrize("text", ["", "4096", "4096x4096", "4x4x4x4", "4 4x4", "axbxc", "4x4x4.0"])
def test_malformed_shape_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ProblemError, match="give MxNxK, such as 4096x4096x4096"):
        Problem.parse(text)


@pytest.mark.parametrize(
    ("text", "name"), [("0x4x4", "M"), ("4x-1x4", "N"), ("4x4x2147483648", "K")]
)
def test_size_out_of_range_is_refused_with_the_range(text: str, name: str) -> None:
    with pytest.raises(ProblemError, match=f"^{name} is .*; give 1 to 2147483647$"):
        Problem.parse(text)


@pytest.mark.parametrize("batch", [0, 65536])
def test_batch_out_of_range_is_refused_with_the_range(batch: int) -> None:
    with pytest.raises(ProblemError, match=f"^batch is {batch}; give 1 to 65535$"):
        Problem(4, 4, 4, batch=batch)


@pytest.mark.parametrize("size", [4.0, True, "4", None])
def test_size_of_another_type_is_refused(size: object) -> None:
    with pytest.raises(ProblemError, match="whole number"):
        Problem(4, size, 4)  # type: ignore[arg-type]


def test_numpy_sizes_become_ints() -> None:
    sizes = [type(size) for size in astuple(Problem(*np.array([2, 3, 4])))[:3]]
    assert sizes == [int, int, int]


def test_unknown_compute_lists_the_legal_ones() -> None:
    with pytest.raises(ProblemError, match="'f4'; give one of f32, tf32, tf32x3, f16, bf16, f8"):
        Problem(4, 4, 4, "f4")


def test_unknown_output_lists_the_legal_ones() -> None:
    with pytest.raises(ProblemError, match="unknown output 'f64'; give one of same, f32, f16"):
        Problem.parse("4x4x4:bf16:out=f64")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4x4x4:bf16:out=f16", "bf16 has no output 'f16'; give one of same, bf16, f32"),
        ("4x4x4:f8:out=i32", "f8 has no output 'i32'; give one of same, bf16, f16, f32"),
        ("4x4x4:i8:out=i32:relu", "i32 has no scales and no epilogue, here scale none and epil"),
        ("4x4x4:i8:out=i32:scale=row", "i32 has no scales and no epilogue, here scale row and "),
        ("4x4x4:f16:scale=row", "scale row is for compute f8, f8e5, i8, not f16; leave one out"),
        ("4x4x4:i8:scale=block", "scale block is for compute f8, f8e5, not i8; leave one out"),
        ("4x4x4:i8:fast", "accumulate fast is for compute f8, f8e5, not i8; leave one out"),
        ("4x4x4:f8:e5m2=ab", "e5m2 ab is for compute f8e5, not f8; leave one out"),
    ],
)
def test_field_of_another_precision_is_refused(text: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        Problem.parse(text)


@pytest.mark.parametrize(
    ("operand", "types"),
    [("a", ("e5m2", "e4m3")), ("b", ("e4m3", "e5m2")), ("ab", ("e5m2", "e5m2"))],
)
def test_e5m2_says_which_operand_has_its_type(operand: str, types: tuple[str, str]) -> None:
    assert Problem(4, 4, 4, "f8e5", e5m2=operand).operand_types == types


@pytest.mark.parametrize(
    ("scale", "shapes"),
    [
        ("none", None),
        ("tensor", ((1,), (1,))),
        ("row", ((3, 200), (3, 130))),
        ("block", ((3, 3, 200), (3, 2, 3))),
    ],
)
def test_scales_have_a_shape_for_each_mode(
    scale: str, shapes: tuple[tuple[int, ...], tuple[int, ...]] | None
) -> None:
    problem = Problem(200, 130, 257, "f8", "nt", 3, scale=scale)
    assert problem.scale_shapes == shapes
    bytes_of_scales = 4 * sum(np.prod(shape) for shape in shapes) if shapes else 0
    assert problem.bytes == Problem(200, 130, 257, "f8", "nt", 3).bytes + bytes_of_scales


@pytest.mark.parametrize(
    ("compute", "output", "types"),
    [
        ("f32", "same", ("f32", "f32", 4, 4)),
        ("tf32", "f32", ("f32", "f32", 4, 4)),
        ("tf32x3", "same", ("f32", "f32", 4, 4)),
        ("f16", "same", ("f16", "f16", 2, 2)),
        ("f16", "f32", ("f16", "f32", 2, 4)),
        ("bf16", "same", ("bf16", "bf16", 2, 2)),
        ("bf16", "f32", ("bf16", "f32", 2, 4)),
        ("f8", "same", ("e4m3", "bf16", 1, 2)),
        ("f8e5", "f16", ("e5m2", "f16", 1, 2)),
        ("i8", "same", ("i8", "bf16", 1, 2)),
        ("i8", "i32", ("i8", "i32", 1, 4)),
    ],
)
def test_compute_and_output_determine_element_types(
    compute: str, output: str, types: tuple[str, str, int, int]
) -> None:
    problem = Problem(4, 4, 4, compute, output=output)
    stored = (problem.operand_types[0], problem.output_type)
    assert (*stored, problem.element_bytes, problem.output_bytes) == types


@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3"])
def test_fp32_output_of_fp32_operands_is_the_default(compute: str) -> None:
    assert Problem(4, 4, 4, compute, output="f32") == Problem(4, 4, 4, compute)


@pytest.mark.parametrize(
    ("compute", "products"), [("f32", 1), ("tf32", 1), ("tf32x3", 3), ("f16", 1), ("bf16", 1)]
)
def test_tf32x3_takes_three_tensor_core_products(compute: str, products: int) -> None:
    assert Problem(4, 4, 4, compute).products == products


def test_unknown_layout_lists_the_legal_ones() -> None:
    with pytest.raises(ProblemError, match="unknown layout 'xx'; give one of nn, nt, tn, tt"):
        Problem(4, 4, 4, "f32", "xx")


def test_unknown_epilogue_lists_the_legal_ones() -> None:
    with pytest.raises(ProblemError, match="unknown epilogue 'tanh'; give one of none, bias, relu"):
        Problem(4, 4, 4, epilogue="tanh")


@pytest.mark.parametrize(
    ("bias", "activation", "epilogue"),
    [
        *((False, None, "none"), (True, None, "bias")),
        *((False, "relu", "relu"), (True, "relu", "bias_relu")),
        *((False, "gelu", "gelu"), (True, "gelu", "bias_gelu")),
        *((False, "gelu_tanh", "gelu_tanh"), (True, "gelu_tanh", "bias_gelu_tanh")),
        *((False, "silu", "silu"), (True, "silu", "bias_silu")),
    ],
)
def test_epilogue_combines_bias_and_activation(
    bias: bool, activation: str | None, epilogue: str
) -> None:
    problem = Problem(4, 4, 4, epilogue=epilogue_of(bias, activation))
    assert (problem.epilogue, problem.has_bias, problem.activation) == (epilogue, bias, activation)


def test_unknown_activation_lists_the_legal_ones() -> None:
    with pytest.raises(ProblemError, match="unknown activation 'tanh'; give one of relu, gelu, "):
        epilogue_of(True, "tanh")


def test_epilogue_index_encodes_bias_and_activation() -> None:
    numbers = [
        int(name.startswith("bias"))
        + 2 * name.endswith("relu")
        + 4 * name.endswith("gelu")
        + 6 * name.endswith("gelu_tanh")
        + 8 * name.endswith("silu")
        + 10 * name.endswith("residual")
        + 12 * name.endswith("swiglu")
        for name in EPILOGUES
    ]
    assert numbers == list(range(len(EPILOGUES)))


@pytest.mark.parametrize("compute", ["f16", "bf16", "f8", "f8e5", "i8"])
@pytest.mark.parametrize("bias", [False, True])
def test_residual_is_a_matrix_like_c(bias: bool, compute: str) -> None:
    problem = Problem.parse(f"4x8x4:{compute}:{epilogue_of(bias, None, True)}")
    assert (problem.has_residual, problem.has_bias, problem.activation) == (True, bias, None)
    alone = replace(problem, epilogue=epilogue_of(bias, None))
    assert problem.bytes - alone.bytes == 4 * 8 * problem.output_bytes


@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3"])
def test_residual_of_32_bits_is_refused(compute: str) -> None:
    text = f"residual is for compute f16, bf16, f8, f8e5, i8, not {compute}; leave one out"
    with pytest.raises(ProblemError, match=text):
        Problem(4, 4, 4, compute, epilogue="residual")


def test_residual_comes_without_an_activation() -> None:
    with pytest.raises(ProblemError, match="a residual comes without an activation, here relu"):
        epilogue_of(True, "relu", True)


@pytest.mark.parametrize("compute", ["f16", "bf16", "f8", "f8e5", "i8"])
def test_swiglu_halves_the_columns_of_c(compute: str) -> None:
    problem = Problem.parse(f"4x32x8:{compute}:nt:batch=3:swiglu")
    assert (problem.gated, problem.width, problem.activation) == (True, 16, None)
    assert (problem.has_bias, problem.has_residual, problem.has_factors) == (False, False, False)
    assert (problem.leading_dimensions, problem.strides) == ((8, 8, 16), (32, 256, 64))
    plain = replace(problem, epilogue="none")
    assert plain.bytes - problem.bytes == 3 * 4 * 16 * problem.output_bytes
    assert problem.flops == plain.flops


@pytest.mark.parametrize("n", [1, 8, 24, 31])
def test_swiglu_takes_whole_pairs_of_columns(n: int) -> None:
    text = f"8 columns of gates and 8 of their values; N is {n}, give a multiple of 16"
    with pytest.raises(ProblemError, match=text):
        Problem(4, n, 4, "bf16", epilogue="swiglu")


@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3"])
def test_swiglu_of_32_bits_is_refused(compute: str) -> None:
    text = f"swiglu is for compute f16, bf16, f8, f8e5, i8, not {compute}; leave one out"
    with pytest.raises(ProblemError, match=text):
        Problem(4, 16, 4, compute, epilogue="swiglu")


def test_swiglu_comes_without_a_bias() -> None:
    assert epilogue_of(False, "swiglu") == "swiglu"
    with pytest.raises(ProblemError, match="swiglu comes without a bias; leave one out"):
        epilogue_of(True, "swiglu")


def test_flops_count_multiplications_and_additions() -> None:
    assert Problem(2, 3, 4).flops == 48


def test_flops_count_the_whole_batch() -> None:
    assert Problem(2, 3, 4, batch=5).flops == 5 * 48


def test_bytes_count_each_matrix_once() -> None:
    assert Problem(2, 3, 4).bytes == 4 * (2 * 4 + 4 * 3 + 2 * 3)


def test_bytes_of_a_batch_count_the_bias_once() -> None:
    assert Problem(2, 3, 4, batch=5, epilogue="bias").bytes == 4 * (5 * (8 + 12 + 6) + 3)


def test_bytes_depend_on_operand_and_output_types() -> None:
    short = Problem(2, 3, 4, "bf16", batch=5, epilogue="bias")
    wide = Problem(2, 3, 4, "bf16", batch=5, epilogue="bias", output="f32")
    assert short.bytes == 2 * (5 * (8 + 12 + 6) + 3)
    assert wide.bytes == 2 * 5 * (8 + 12) + 4 * (5 * 6 + 3)


@pytest.mark.parametrize(
    ("compute", "accuracy", "expected"),
    [
        *(("f32", "exact", "f32"), ("f32", "near", "tf32x3")),
        *(("tf32x3", "near", "tf32x3"), ("bf16", "exact", "bf16")),
    ],
)
def test_near_accuracy_turns_f32_into_tf32x3(compute: str, accuracy: Any, expected: str) -> None:
    assert compute_of(compute, accuracy) == expected


@pytest.mark.parametrize(
    ("compute", "accuracy", "message"),
    [("f16", "near", "near is for compute f32, not f16"), ("f32", "good", "give one of exact, ne")],
)
def test_invalid_accuracy_is_refused(compute: str, accuracy: Any, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        compute_of(compute, accuracy)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_strides_are_rows_times_leading_dimension(layout: str) -> None:
    problem = Problem(2, 3, 4, layout=layout)
    pairs = zip(problem.stored_rows, problem.leading_dimensions, strict=True)
    assert problem.strides == tuple(rows * ld for rows, ld in pairs) == (8, 12, 6)


def test_doubling_the_batch_is_a_distance_of_one_octave() -> None:
    assert distance(Problem(2, 3, 4, batch=8), Problem(2, 3, 4, batch=4)) == 1.0


@pytest.mark.parametrize(
    ("layout", "lds"), [("nn", (4, 3, 3)), ("nt", (4, 4, 3)), ("tn", (2, 3, 3)), ("tt", (2, 4, 3))]
)
def test_leading_dimensions_are_stored_row_lengths(layout: str, lds: tuple[int, int, int]) -> None:
    assert Problem(2, 3, 4, layout=layout).leading_dimensions == lds


@pytest.mark.parametrize(
    ("spelled", "canonical"),
    [
        ("64x64x64:fp32", "64x64x64:f32:nn"),
        ("64x64x64:FP16:NT", "64x64x64:f16:nt"),
        ("64x64x64:float16:out=fp32", "64x64x64:f16:nn:out=f32"),
        ("64x64x64:bfloat16:out=float32", "64x64x64:bf16:nn:out=f32"),
    ],
)
def test_other_spellings_name_the_same_problem(spelled: str, canonical: str) -> None:
    assert str(Problem.parse(spelled)) == canonical


def test_words_of_fields_have_other_spellings() -> None:
    usual = Problem(8, 8, 8, "bf16", "nt", epilogue="relu", output="f32")
    assert Problem(8, 8, 8, "bfloat16", "NT", epilogue="ReLU", output="float32") == usual


def test_spelling_twice_is_no_contradiction() -> None:
    assert Problem.parse("8x8x8:fp16:f16") == Problem(8, 8, 8, "f16")


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"),
    [(0, 4, 0), (1, 4, 1), (4, 4, 1), (5, 4, 2), (2**62 + 1, 2, 2**61 + 1)],
)
def test_ceil_div_rounds_up_exactly(dividend: int, divisor: int, quotient: int) -> None:
    assert ceil_div(dividend, divisor) == quotient


@pytest.mark.parametrize(("size", "step", "rounded"), [(0, 8, 0), (1, 8, 8), (8, 8, 8), (9, 8, 16)])
def test_round_up_reaches_the_next_multiple(size: int, step: int, rounded: int) -> None:
    assert round_up(size, step) == rounded


@pytest.mark.parametrize("output", ["e4m3", "e5m2"])
@pytest.mark.parametrize("compute", ["f8", "f8e5"])
def test_fp8_products_may_be_fp8(compute: str, output: str) -> None:
    problem = Problem.parse(f"64x32x16:{compute}:nt:bias_relu:out={output}")
    assert str(problem) == f"64x32x16:{compute}:nt:bias_relu:out={output}"
    assert (problem.output_bytes, problem.bias_element.name) == (1, "bf16")
    assert problem.bytes == 64 * 16 + 32 * 16 + 64 * 32 + 2 * 32
    assert not problem.has_factors


def test_dtypes_of_torch_name_fp8_results() -> None:
    assert Problem.parse("8x8x8:f8:out=float8_e4m3fn").output == "e4m3"


@pytest.mark.parametrize("compute", ["f32", "f16", "bf16", "i8"])
def test_other_products_are_not_fp8(compute: str) -> None:
    with pytest.raises(ProblemError, match=f"compute {compute} has no output 'e4m3'"):
        Problem(8, 8, 8, compute, output="e4m3")


def test_fp8_results_have_no_residual() -> None:
    with pytest.raises(ProblemError, match="output e5m2 has no residual, here epilogue residual"):
        Problem(8, 8, 8, "f8", output="e5m2", epilogue="residual")
