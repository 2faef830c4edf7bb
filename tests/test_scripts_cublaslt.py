"""cuBLASLt's candidates: called on host memory, in a stand-in that is declared as the library."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from ctypes import byref, c_int, c_size_t, c_uint64
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cublaslt
import numpy as np
import pytest
from numpy.typing import NDArray

from autotune.errors import MissingError, RunnerError
from autotune.problem import LAYOUTS, Problem

STREAM = 0x5EED  # the only one that the stand-in takes
SHAPE = Problem(5, 7, 3)
GAP = 2


@dataclass(frozen=True)
class Block:
    """Host memory in the place of an allocation: its int is its address."""

    words: NDArray[np.float32]

    def __int__(self) -> int:
        return int(self.words.ctypes.data)


@dataclass(frozen=True)
class Stored:
    """A row-major matrix with `GAP` words between its rows."""

    words: NDArray[np.float32]

    @property
    def address(self) -> int:
        return int(self.words.ctypes.data)

    @property
    def matrix(self) -> NDArray[np.float32]:
        return self.words[:, :-GAP]


def stored(rows: int, columns: int, transposed: bool = False) -> Stored:
    shape = (columns, rows + GAP) if transposed else (rows, columns + GAP)
    return Stored(np.random.default_rng(rows).normal(size=shape).astype(np.float32))


def operands_of(problem: Problem) -> Any:
    left, right = (letter == "t" for letter in problem.layout)
    a, b = stored(problem.m, problem.k, left), stored(problem.k, problem.n, right)
    c = stored(problem.m, problem.n)
    lengths = tuple(one.words.shape[1] for one in (a, b, c))
    return SimpleNamespace(problem=problem, a=a, b=b, c=c, leading_dimensions=lengths)


@pytest.fixture
def session() -> Any:
    kept = []

    def allocate(size: int) -> Block:
        kept.append(Block(np.full(size // 4, np.nan, np.float32)))
        return kept[-1]

    return SimpleNamespace(stream=SimpleNamespace(handle=STREAM), allocate=allocate)


@pytest.fixture(scope="module")
def stand_in(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("cublaslt") / "libcublasLt.so"
    source = Path(__file__).parent / "host" / "cublaslt.cpp"
    compiler = os.environ.get("CXX", "g++")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", source, "-o", path], check=True)
    return str(path)


@pytest.fixture
def rivals(
    stand_in: str, session: Any, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Any], list[tuple[str, Callable[[], None]]]]:
    monkeypatch.setattr(cublaslt, "library_path", lambda: stand_in)
    return lambda operands: cublaslt.open_rivals(session, operands)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", [0, 1])
def test_each_rival_computes_the_row_major_product(
    rivals: Callable[[Any], Any], layout: str, which: int
) -> None:
    operands = operands_of(replace(SHAPE, layout=layout))
    expected_a, expected_b = (
        one.matrix.T if letter == "t" else one.matrix
        for one, letter in zip((operands.a, operands.b), layout, strict=True)
    )
    _, run = rivals(operands)[which]
    run()
    np.testing.assert_allclose(operands.c.matrix, expected_a @ expected_b, rtol=1e-5, atol=1e-6)


def test_it_writes_nothing_between_the_rows_of_c(rivals: Callable[[Any], Any]) -> None:
    operands = operands_of(SHAPE)
    before = operands.c.words[:, -GAP:].copy()
    rivals(operands)[0][1]()
    np.testing.assert_array_equal(operands.c.words[:, -GAP:], before)


def test_rivals_are_named_by_rank_without_the_unusable(rivals: Callable[[Any], Any]) -> None:
    assert [name for name, _ in rivals(operands_of(SHAPE))] == ["cuBLASLt 1", "cuBLASLt 2"]


@pytest.mark.parametrize("changed", [{"batch": 2}, {"epilogue": "relu"}])
def test_there_are_none_for_a_batch_or_an_epilogue(
    rivals: Callable[[Any], Any], changed: dict[str, Any]
) -> None:
    assert rivals(operands_of(replace(SHAPE, **changed))) == []


def test_a_refusal_says_which_call(stand_in: str) -> None:
    library = cublaslt.Library(stand_in)
    with pytest.raises(RunnerError, match="cublasLtMatrixLayoutCreate returned status 7"):
        library.made("MatrixLayout", 1, 4, 4, 4)


def test_the_result_is_as_large_as_the_header_has_it() -> None:
    assert ctypes.sizeof(cublaslt.Result) == 64 + 8 + 4 + 4 + 4 * 4


@pytest.fixture(scope="module")
def real() -> str:
    try:
        return cublaslt.library_path()
    except MissingError:
        pytest.skip("no libcublasLt")


def test_the_library_understands_the_product(real: str) -> None:
    made = cublaslt.Library(real).product("nt")
    assert [
        _read(real, "MatmulDesc", made, attribute, c_int())
        for attribute in (cublaslt.DESC_TRANSA, cublaslt.DESC_TRANSB)
    ] == [cublaslt.OP_T, cublaslt.OP_N]


def test_the_library_understands_a_layout(real: str) -> None:
    made = cublaslt.Library(real).layout(5, 7, 7 + GAP)
    rows, columns, leading_dimension = 2, 3, 4  # of cublasLtMatrixLayoutAttribute_t
    assert [
        _read(real, "MatrixLayout", made, attribute, c_uint64())
        for attribute in (rows, columns, leading_dimension)
    ] == [7, 5, 7 + GAP]


def _read(library: str, kind: str, holder: Any, attribute: int, value: c_int | c_uint64) -> int:
    function = ctypes.CDLL(library)[f"cublasLt{kind}GetAttribute"]
    written, size = c_size_t(), c_size_t(ctypes.sizeof(value))
    assert function(holder, attribute, byref(value), size, byref(written)) == 0
    return value.value
