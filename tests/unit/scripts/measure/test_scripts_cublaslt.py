"""The cuBLASLt baseline, on host memory and with a fake library."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint32, c_uint64
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import cublaslt
import numpy as np
import pytest
from numpy.typing import NDArray
from support.paths import TESTS

from autotune.errors import MissingError, RunnerError
from autotune.measure.cublas import library_path
from autotune.problem import LAYOUTS, Problem

STREAM = 0x5EED  # the only stream the fake accepts
SHAPE = Problem(5, 7, 3)
GAP = 2


@dataclass(frozen=True)
class Block:
    """Host memory that converts to its address, as an allocation does."""

    words: NDArray[np.float32]

    def __int__(self) -> int:
        return int(self.words.ctypes.data)


@dataclass(frozen=True)
class Stored:
    """A row-major matrix with `GAP` elements between rows; bfloat16 as the uint16 of its bits."""

    words: NDArray[Any]

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    @property
    def matrix(self) -> NDArray[Any]:
        return self.values[:, :-GAP]

    @property
    def values(self) -> NDArray[Any]:
        if self.words.dtype == np.float32:
            return self.words
        return (self.words.astype(np.uint32) << 16).view(np.float32)


def stored(kind: str, rows: int, columns: int, transposed: bool = False) -> Stored:
    shape = (columns, rows + GAP) if transposed else (rows, columns + GAP)
    values = np.random.default_rng(rows).normal(size=shape).astype(np.float32)
    return Stored(values if kind == "f32" else (values.view(np.uint32) >> 16).astype(np.uint16))


def operands_of(problem: Problem) -> Any:
    left, right = (letter == "t" for letter in problem.layout)
    kind = problem.operand_types[0]
    a, b = stored(kind, problem.m, problem.k, left), stored(kind, problem.k, problem.n, right)
    c = stored(problem.output_type, problem.m, problem.n)
    lengths = tuple(matrix.words.shape[1] for matrix in (a, b, c))
    return SimpleNamespace(problem=problem, a=a, b=b, c=c, leading_dimensions=lengths)


@pytest.fixture
def session() -> Any:
    kept = []

    def allocate(size: int) -> Block:
        kept.append(Block(np.full(size // 4, np.nan, np.float32)))
        return kept[-1]

    return SimpleNamespace(stream=STREAM, allocate=allocate)


@pytest.fixture(scope="module")
def fake_library(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    source = TESTS / "host" / "cublaslt.cpp"
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", path], check=True)
    return str(path)


@pytest.fixture
def baselines(
    fake_library: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], list[tuple[str, Callable[[], None]]]]:
    monkeypatch.setattr(cublaslt, "library_path", lambda _: fake_library)
    return lambda operands: cublaslt.open_baselines(session, operands)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", [0, 1])
def test_each_result_computes_the_row_major_gemm(
    baselines: Callable[[Any], Any], layout: str, which: int
) -> None:
    operands = operands_of(replace(SHAPE, layout=layout))
    expected_a, expected_b = (
        operand.matrix.T if letter == "t" else operand.matrix
        for operand, letter in zip((operands.a, operands.b), layout, strict=True)
    )
    _, run = baselines(operands)[which]
    run()
    np.testing.assert_allclose(operands.c.matrix, expected_a @ expected_b, rtol=1e-5, atol=1e-6)


def matmul_of(operands: Any) -> NDArray[np.float64]:
    return np.asarray(operands.a.matrix.astype(float) @ operands.b.matrix.astype(float))


@pytest.mark.parametrize("output", ["same", "f32"])
def test_16_bit_baseline_sums_in_fp32(baselines: Callable[[Any], Any], output: str) -> None:
    operands = operands_of(replace(SHAPE, compute="bf16", output=output))
    baselines(operands)[0][1]()
    rounding = 2**-8 if output == "same" else 1e-6
    np.testing.assert_allclose(
        operands.c.matrix, matmul_of(operands), rtol=rounding, atol=rounding / 100
    )


def test_only_tf32_rounds_its_operands(
    baselines: Callable[[Any], Any],
) -> None:
    errors = {}
    for compute in ("tf32", "tf32x3"):
        operands = operands_of(replace(SHAPE, compute=compute))
        baselines(operands)[0][1]()
        errors[compute] = np.abs(operands.c.matrix - matmul_of(operands)).max()
    assert errors["tf32x3"] < 1e-6 < 1e-5 < errors["tf32"] < 1e-2


def test_gaps_between_rows_of_c_stay_untouched(baselines: Callable[[Any], Any]) -> None:
    operands = operands_of(SHAPE)
    before = operands.c.words[:, -GAP:].copy()
    baselines(operands)[0][1]()
    np.testing.assert_array_equal(operands.c.words[:, -GAP:], before)


def test_results_are_ranked_without_unusable_ones(baselines: Callable[[Any], Any]) -> None:
    assert [name for name, _ in baselines(operands_of(SHAPE))] == ["cuBLASLt 1", "cuBLASLt 2"]


@pytest.mark.parametrize("changed", [{"batch": 2}, {"epilogue": "relu"}])
def test_batches_and_epilogues_have_no_baselines(
    baselines: Callable[[Any], Any], changed: dict[str, Any]
) -> None:
    assert baselines(operands_of(replace(SHAPE, **changed))) == []


def test_refusal_names_the_call(fake_library: str) -> None:
    library = cublaslt.CublasLt(fake_library)
    with pytest.raises(RunnerError, match="cublasLtMatrixLayoutCreate returned status 7"):
        library.create("MatrixLayout", 1, 4, 4, 4)


def test_result_structure_has_the_headers_size() -> None:
    assert ctypes.sizeof(cublaslt.HeuristicResult) == 64 + 8 + 4 + 4 + 4 * 4


@pytest.fixture(scope="module")
def real() -> str:
    try:
        return library_path("cublasLt")
    except MissingError:
        pytest.skip("no libcublasLt")


def test_library_accepts_the_descriptor(real: str) -> None:
    descriptor = cublaslt.CublasLt(real).description("bf16", "nt")
    assert [
        _read(real, "MatmulDesc", descriptor, attribute, c_int())
        for attribute in (cublaslt.DESC_TRANSA, cublaslt.DESC_TRANSB)
    ] == [cublaslt.OP_T, cublaslt.OP_N]


@pytest.mark.parametrize(("compute", "expected"), [("tf32", 77), ("tf32x3", 68), ("f16", 68)])
def test_library_accepts_the_precision(real: str, compute: str, expected: int) -> None:
    descriptor = cublaslt.CublasLt(real).description(compute, "nn")
    compute_type = 0  # of cublasLtMatmulDescAttributes_t
    assert _read(real, "MatmulDesc", descriptor, compute_type, c_int()) == expected


@pytest.mark.parametrize(("kind", "expected"), [("f32", 0), ("f16", 2), ("bf16", 14)])
def test_library_accepts_the_layout(real: str, kind: str, expected: int) -> None:
    descriptor = cublaslt.CublasLt(real).layout(kind, 5, 7, 7 + GAP)
    rows, columns, leading_dimension = 2, 3, 4  # of cublasLtMatrixLayoutAttribute_t
    assert [
        _read(real, "MatrixLayout", descriptor, attribute, c_uint64())
        for attribute in (rows, columns, leading_dimension)
    ] == [7, 5, 7 + GAP]
    assert _read(real, "MatrixLayout", descriptor, 0, c_uint32()) == expected


def _read(
    library: str, kind: str, holder: Any, attribute: int, value: c_int | c_uint32 | c_uint64
) -> int:
    function = ctypes.CDLL(library)[f"cublasLt{kind}GetAttribute"]
    written, size = c_size_t(), c_size_t(ctypes.sizeof(value))
    assert function(holder, attribute, byref(value), size, byref(written)) == 0
    return value.value
