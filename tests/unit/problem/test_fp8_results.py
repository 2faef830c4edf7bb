"""Problems whose C is fp8."""

from __future__ import annotations

import pytest

from autotune.errors import ProblemError
from autotune.problem import Problem


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


def test_other_precisions_drop_an_fp8_output() -> None:
    assert Problem(8, 8, 8, "f8", output="e4m3").in_precision("bf16").output == "same"
