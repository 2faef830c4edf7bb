"""The vendor's product of strided, batched and shared operands, with a PyTorch made of numpy."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_session import FakeSession
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from autotune.gpu.baseline import baseline
from autotune.gpu.operands import Matrix, Operands
from autotune.problem import EPILOGUES, LAYOUTS, Problem
from autotune.reference import product, tolerance

Array = NDArray[np.float32]


def as_tensor(words: Any, **_: object) -> Array:
    interface = dict(words.__cuda_array_interface__)
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    reach = 1 + sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
    assert reach <= array.size
    return as_strided(array, shape, [4 * step for step in strides])


def plain(dimensions: int) -> Any:
    def run(a: Array, b: Array, out: Array) -> None:
        assert a.ndim == b.ndim == out.ndim == dimensions
        np.matmul(a, b, out=out)

    return run


def added(dimensions: int) -> Any:
    def run(bias: Array, a: Array, b: Array, out: Array) -> None:
        plain(dimensions)(a, b, out=out)
        out += bias

    return run


def gelu(array: Array) -> None:
    one = np.ones((1, 1), np.float32)
    flat = np.ascontiguousarray(array).reshape(1, -1)
    problem = Problem(1, flat.shape[1], 1, epilogue="gelu")
    array[...] = product(problem, one, flat).reshape(array.shape)


def fake_torch() -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(
            is_available=lambda: True,
            ExternalStream=lambda *_, **__: None,
            stream=lambda _: nullcontext(),
        ),
        set_float32_matmul_precision=lambda _: None,
        device=lambda *_: None,
        as_tensor=as_tensor,
        as_strided=strided,
        mm=plain(2),
        bmm=plain(3),
        addmm=added(2),
        baddbmm=added(3),
        relu_=lambda array: np.maximum(array, 0, out=array),
        ops=SimpleNamespace(aten=SimpleNamespace(gelu_=gelu)),
    )


def matrices(matrix: Matrix) -> Array:
    """All matrices as they are stored, with the batch in front."""
    words = matrix.allocation.words[1024:]
    shape = matrix.batch, matrix.rows, matrix.columns
    return strided(words, shape, (matrix.stride, matrix.leading_dimension, 1))


def run(problem: Problem, *layout: Any) -> tuple[Array, NDArray[np.float64]]:
    """What the baseline computes, and what it should."""
    session: Any = FakeSession()
    operands = Operands(session, problem, *layout)
    random = np.random.default_rng(0)
    for matrix in (operands.a, operands.b, operands.bias):
        filled = matrices(matrix)
        filled[:] = random.standard_normal(filled.shape, np.float32)
    vendor = baseline(session, operands)
    assert vendor is not None
    vendor()
    a, b, bias = (matrices(one) for one in (operands.a, operands.b, operands.bias))
    wanted = product(problem, a, b, bias=bias[0, 0])
    return matrices(operands.c), wanted


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_vendor_computes_the_problem(layout: str, batch: int, epilogue: str) -> None:
    problem = Problem(5, 6, 7, layout=layout, batch=batch, epilogue=epilogue)
    found, wanted = run(problem)
    assert np.abs(found - wanted).max() <= tolerance(problem)


@pytest.mark.parametrize(
    "strides",
    [None, (0, 0, 120), (8, 8, 9), (110, 160, 130)],
    ids=["dense", "shared", "side by side", "gaps"],
)
def test_the_vendor_follows_strides(strides: tuple[int, int, int] | None) -> None:
    problem = Problem(5, 6, 7, batch=3, epilogue="bias")
    found, wanted = run(problem, (24, 25, 27), strides)
    assert np.abs(found - wanted).max() <= tolerance(problem)


def test_cupy_is_not_asked_for_an_epilogue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    session: Any = FakeSession()
    assert baseline(session, Operands(session, Problem(2, 3, 4, epilogue="relu"))) is None


def test_there_is_no_vendor_without_its_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "cupy", None)
    session: Any = FakeSession()
    assert baseline(session, Operands(session, Problem(2, 3, 4))) is None
