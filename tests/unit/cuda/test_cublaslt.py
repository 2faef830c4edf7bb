"""cuBLASLt's algorithms, with a fake library on host memory and where there is one the real one."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_int, c_size_t, c_uint32, c_uint64
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.fake_cublaslt import GAP, STREAM, operands_of

from autotune.cuda import cublaslt
from autotune.cuda.cublaslt import CublasLt, LibraryProblem
from autotune.errors import MissingError, RunnerError
from autotune.families.plan import Algorithm, LibraryCall
from autotune.problem import LAYOUTS, Problem

SHAPE = Problem(5, 7, 3)
BEST = Algorithm(60, 70, 80, 90, 100, 110, 120, 130, 140)
"""The first algorithm of the fake's heuristic."""


@pytest.fixture
def library(_fake_cublaslt: None) -> CublasLt:
    return CublasLt.load()


def run(library: CublasLt, operands: Any, algorithm: Algorithm = BEST, **values: Any) -> None:
    words = {**operands.values(1.0, 0.0), **values}
    library.bind(LibraryCall(operands.problem, algorithm), words).enqueue(words, STREAM, 0)


def product(operands: Any) -> NDArray[np.float64]:
    a, b = operands.a.matrix.astype(float), operands.b.matrix.astype(float)
    left, right = operands.problem.layout
    return np.asarray((a.T if left == "t" else a) @ (b.T if right == "t" else b))


def test_heuristic_gives_usable_algorithms_as_integers(library: CublasLt) -> None:
    found = library.heuristic(SHAPE)
    assert found[0] == (BEST, 0)
    assert [(each.algorithm.id, each.workspace) for each in found] == [
        (60, 0),
        (62, 512),
        (63, 768),
    ]


def test_heuristic_of_an_unserved_problem_is_empty(library: CublasLt) -> None:
    assert library.heuristic(replace(SHAPE, compute="tf32")) != []
    values = {**operands_of(SHAPE).values(1.0, 0.0), "ldc": 1}
    assert library.heuristic(SHAPE, values) == []


@pytest.mark.parametrize("layout", LAYOUTS)
def test_algorithm_made_of_its_integers_computes_the_gemm(library: CublasLt, layout: str) -> None:
    operands = operands_of(replace(SHAPE, layout=layout))
    run(library, operands)
    np.testing.assert_allclose(operands.c.matrix, product(operands), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attribute", Algorithm._fields[1:])
def test_every_attribute_reaches_the_library(library: CublasLt, attribute: str) -> None:
    changed = BEST._replace(**{attribute: 1})
    with pytest.raises(RunnerError, match="cublasLtMatmul returned status 7"):
        run(library, operands_of(SHAPE), changed)


def test_unknown_algorithm_is_refused_before_it_runs(library: CublasLt) -> None:
    operands = operands_of(SHAPE)
    call = LibraryCall(SHAPE, BEST._replace(id=1))
    with pytest.raises(RunnerError, match="cublasLtMatmulAlgoCheck returned status 7"):
        library.bind(call, operands.values(1.0, 0.0))


def test_bound_product_states_its_workspace(library: CublasLt) -> None:
    last = library.heuristic(SHAPE)[-1]
    values = operands_of(SHAPE).values(1.0, 0.0)
    assert library.bind(LibraryCall(SHAPE, last.algorithm), values).workspace == last.workspace


def test_alpha_and_beta_scale_the_product_and_c(library: CublasLt) -> None:
    operands = operands_of(SHAPE)
    before = operands.c.matrix.copy()
    run(library, operands, alpha=0.5, beta=-2.0)
    expected = 0.5 * product(operands) - 2 * before
    np.testing.assert_allclose(operands.c.matrix, expected, rtol=1e-5, atol=1e-5)


def test_factors_live_until_the_call(library: CublasLt, monkeypatch: pytest.MonkeyPatch) -> None:
    call, kept = library.call, list[c_float]()

    def allocating(name: str, *arguments: Any) -> None:
        kept.extend(c_float(np.nan) for _ in range(16))  # they take memory that is free
        call(name, *arguments)

    operands = operands_of(SHAPE)
    monkeypatch.setattr(library, "call", allocating)
    run(library, operands)
    np.testing.assert_allclose(operands.c.matrix, product(operands), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("epilogue", ["bias", "relu", "bias_relu"])
def test_bias_and_relu_are_fused(library: CublasLt, epilogue: str) -> None:
    operands = operands_of(replace(SHAPE, epilogue=epilogue))
    bias = np.linspace(-2, 2, SHAPE.n).astype(np.float32)
    run(library, operands, bias=bias.ctypes.data)
    expected = product(operands) + (bias if "bias" in epilogue else 0)
    if "relu" in epilogue:
        expected = np.maximum(expected, 0)
    np.testing.assert_allclose(operands.c.matrix, expected, rtol=1e-5, atol=1e-5)


def test_batch_steps_by_its_strides(library: CublasLt) -> None:
    a, b, c = (
        np.random.default_rng(seed).normal(size=size).astype(np.float32)
        for seed, size in enumerate(((3, 6, 3), (3, 7), (3, 5, 7)))
    )
    words = {"a": a.ctypes.data, "b": b.ctypes.data, "c": c.ctypes.data, "workspace": 0}
    pitches = {"lda": 3, "ldb": 7, "ldc": 7, "stride_a": 18, "stride_b": 0, "stride_c": 35}
    values = {**words, **pitches, "alpha": 1.0, "beta": 0.0}
    call = LibraryCall(replace(SHAPE, batch=3), BEST)
    library.bind(call, values).enqueue(values, STREAM, 0)
    np.testing.assert_allclose(c, a[:, :5] @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("output", ["same", "f32"])
def test_16_bit_products_sum_in_fp32(library: CublasLt, output: str) -> None:
    operands = operands_of(replace(SHAPE, compute="bf16", output=output))
    run(library, operands)
    rounding = 2**-8 if output == "same" else 1e-6
    np.testing.assert_allclose(
        operands.c.matrix, product(operands), rtol=rounding, atol=rounding / 100
    )


def test_only_tf32_rounds_its_operands(library: CublasLt) -> None:
    errors = {}
    for compute in ("tf32", "tf32x3"):
        operands = operands_of(replace(SHAPE, compute=compute))
        run(library, operands)
        errors[compute] = np.abs(operands.c.matrix - product(operands)).max()
    assert errors["tf32x3"] < 1e-6 < 1e-5 < errors["tf32"] < 1e-2


def test_gaps_between_rows_of_c_stay_untouched(library: CublasLt) -> None:
    operands = operands_of(SHAPE)
    before = operands.c.words[:, -GAP:].copy()
    run(library, operands)
    np.testing.assert_array_equal(operands.c.words[:, -GAP:], before)


def test_version_is_that_of_the_library(library: CublasLt) -> None:
    assert (library.version, cublaslt.version()) == ("13.2.4", "13.2.4")


def test_missing_library_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: str) -> str:
        raise MissingError("no cuBLAS")

    monkeypatch.setattr(cublaslt, "library_path", missing)
    assert cublaslt.version() == ""
    with pytest.raises(MissingError):
        CublasLt.load()


def test_result_structure_has_the_headers_size() -> None:
    assert ctypes.sizeof(cublaslt.HeuristicResult) == 64 + 8 + 4 + 4 + 4 * 4


@pytest.fixture(scope="module")
def real() -> str:
    try:
        return cublaslt.library_path("cublasLt")
    except MissingError:
        pytest.skip("no libcublasLt")


TEXTS = ("64x48x32:bf16:nt:bias_relu", "64x48x32:tf32:tn", "64x48x32:f8:nt:scale=row:fast")


@pytest.mark.parametrize("text", TEXTS)
def test_real_library_accepts_the_description(real: str, text: str) -> None:
    problem, library = Problem.parse(text), _without_handle(real)
    values = {**cublaslt.dense(problem), "bias": 256, "scale_a": 256, "scale_b": 256}
    made, told = cublaslt.Descriptors(library, problem, values), LibraryProblem.of(problem)
    read = [_read(real, "MatmulDesc", made.description, *asked) for asked in _ASKED]
    assert read == [told.compute, told.factor, *told.operations, told.epilogue]


_ASKED = ((0, c_int()), (1, c_int()), (3, c_int()), (4, c_int()), (7, c_uint32()))
"""Attributes of a description by their numbers: compute, factor, operations, epilogue."""


def test_real_library_accepts_the_layouts(real: str) -> None:
    problem = Problem(5, 7, 3, "bf16", output="f32", batch=4)
    made = cublaslt.Descriptors(_without_handle(real), problem, cublaslt.dense(problem))
    b, a, c = (
        [_read(real, "MatrixLayout", layout, number, c_uint64()) for number in (2, 3, 4)]
        for layout in made.described[1:4]
    )
    assert (b, a, c) == ([7, 3, 7], [3, 5, 3], [7, 5, 7])
    kinds = [_read(real, "MatrixLayout", layout, 0, c_uint32()) for layout in made.described[1:]]
    assert kinds == [14, 14, 0, 0]
    assert _read(real, "MatrixLayout", made.described[2], 5, c_int()) == 4


def _without_handle(path: str) -> CublasLt:
    """The real library, whose handle needs a GPU."""
    return CublasLt(ctypes.CDLL(path), handle=False)


def _read(library: str, kind: str, holder: Any, attribute: int, value: Any) -> Any:
    function = ctypes.CDLL(library)[f"cublasLt{kind}GetAttribute"]
    written, size = c_size_t(), c_size_t(ctypes.sizeof(value))
    assert function(holder, attribute, byref(value), size, byref(written)) == 0
    return value.value
