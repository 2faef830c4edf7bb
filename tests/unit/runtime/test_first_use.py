"""The first-use check of `verify=True`: right kernels pass once, wrong ones are refused."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest
from support import fake_driver
from support.runtime_case import SPLIT, TYPED, Case

from autotune import runtime
from autotune.errors import UsageError, VerificationError
from autotune.families.plan import Alignment
from autotune.problem import ELEMENTWISE, LAYOUTS, PRECISIONS, Problem
from autotune.runtime import first_use
from autotune.settings import Policy

PROBLEM = Problem(13, 11, 40)


def verify(case: Case, problem: Problem, alignment: Alignment | None = None) -> None:
    aligned = alignment or Alignment.dense(problem)
    assert case.config is not None
    case.runtime.verify(case.config, problem, 0, aligned)


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes the typed kernel forget one term of one element."""
    right, formats = fake_driver._KERNELS["typed"]

    def wrong(z: int, *arguments: Any) -> None:
        right(z, *arguments)
        c = np.ctypeslib.as_array((ctypes.c_float * 1).from_address(arguments[4]))
        c[0] -= 2

    monkeypatch.setitem(fake_driver._KERNELS, "typed", (wrong, formats))


@pytest.mark.parametrize(
    "problem",
    [
        *(
            Problem(13, 11, 40, layout=layout, batch=batch)
            for layout in LAYOUTS
            for batch in (1, 3)
        ),
        *(Problem(13, 11, 40, epilogue=name) for name in ELEMENTWISE),
        *(Problem(13, 11, 40, kind, "nt", epilogue="bias") for kind in ("f16", "bf16")),
        Problem(13, 11, 40, "bf16", output="f32"),
        *(Problem(13, 11, 40, "bf16", epilogue=name) for name in ("gelu_tanh", "bias_silu")),
        *(Problem(5, 3, k) for k in (1, 2, 5)),
        *(
            Problem(13, 140, 300, compute, layout, batch, scale=scale)
            for compute in ("f8", "f8e5", "i8")
            for scale in PRECISIONS[compute].scales
            for layout, batch in (("nt", 1), ("tn", 3))
        ),
        *(
            Problem(13, 11, 40, "f8e5", e5m2=operand, epilogue="bias_gelu")
            for operand in ("b", "ab")
        ),
        Problem(13, 11, 40, "f8", accumulate="fast", scale="row", output="f16"),
        Problem(13, 11, 40, "i8", "nt", output="i32"),
    ],
    ids=str,
)
def test_right_kernel_passes(problem: Problem) -> None:
    verify(Case(config=TYPED), problem)


def test_kernel_with_scratch_memory_passes() -> None:
    verify(Case(config=SPLIT), Problem(13, 11, 40))


def test_padded_rows_serve_wide_vectors() -> None:
    case = Case(config=TYPED)
    verify(case, PROBLEM, Alignment(4, 4, 4))
    lds = [case.cuda.launches[0].arguments[i] for i in (1, 3, 5)]
    assert lds == [40, 12, 12]


@pytest.mark.usefixtures("broken")
def test_wrong_kernel_is_refused_with_numbers() -> None:
    with pytest.raises(
        VerificationError, match=r"computes 1 of 143 elements of 13x11x40:f32:nn wrong"
    ):
        verify(Case(config=TYPED), PROBLEM)


@pytest.mark.parametrize("place", [12, 13])
@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
@pytest.mark.parametrize("sizes", [(13, 140, 300), (1, 1, 64)])
def test_kernel_that_ignores_scales_is_refused(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, int, int], scale: str, place: int
) -> None:
    right, formats = fake_driver._KERNELS["scaled"]
    ones = np.ones(1000, np.float32)

    def wrong(z: int, *arguments: Any) -> None:
        changed = list(arguments)
        changed[place] = ones.ctypes.data
        right(z, *changed)

    monkeypatch.setitem(fake_driver._KERNELS, "scaled", (wrong, formats))
    with pytest.raises(VerificationError):
        verify(Case(config=TYPED), Problem(*sizes, "f8", scale=scale))


@pytest.mark.usefixtures("broken")
def test_wrong_kernel_is_refused_again() -> None:
    case = Case(config=TYPED)
    for _ in range(2):
        with pytest.raises(VerificationError):
            verify(case, PROBLEM)


def test_check_frees_its_memory() -> None:
    case = Case(config=TYPED)
    verify(case, PROBLEM)
    assert case.cuda.allocations == {}


def test_capture_is_refused() -> None:
    case = Case()
    operands = case.operands(6, 5, 4)
    case.matmul(*operands)
    case.cuda.captures[case.cuda.launches[0].stream] = 7
    with pytest.raises(UsageError, match="before the graph is captured"):
        case.matmul(*operands, policy=Policy(verify=True))


def test_matmul_checks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[Problem] = []
    monkeypatch.setattr(first_use, "check", lambda _gpu, _run, problem, _: checks.append(problem))
    case = Case()
    a, b, out = case.operands(6, 5, 4)
    case.matmul(a, b, out)
    for _ in range(2):
        case.matmul(a, b, out, policy=Policy(verify=True))
    assert checks == [Problem(6, 5, 4)]
    assert len(case.cuda.launches) == 3


def test_matmul_does_not_check_the_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_use, "check", lambda *_: pytest.fail("cuBLAS was checked"))
    case = Case(vendor=True)
    case.matmul(*case.operands(6, 5, 4), policy=Policy(verify=True))


def test_loading_checks_operands_without_gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[object] = []
    monkeypatch.setattr(first_use, "check", lambda *arguments: checks.append(arguments[2:]))
    case = Case()
    monkeypatch.setattr("autotune.runtime.current", lambda: case.matmul)
    runtime.load(PROBLEM, 0, policy=Policy(verify=True))
    runtime.load_all([PROBLEM, Problem(8, 8, 8)], 0, 1, policy=Policy(verify=True))
    assert checks == [(item, Alignment.dense(item)) for item in (PROBLEM, Problem(8, 8, 8))]
