"""The vendor's library is not called where its result is wrong, or its version may be."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from support.fake_frameworks import FakeTorch
from support.logged import warnings_logged
from support.runtime_case import NAIVE, Case
from support.sample_records import H100, entry, record

from autotune.cuda import cublaslt
from autotune.errors import FrozenError
from autotune.lookup.answer import Answer, How, without_faulty_vendor
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime
from autotune.settings import Mode

DEEP = Problem(5, 7, 1032)
"""A K that split-K may divide so that its end is lost."""
FAULTY, MENDED = "13.1.0", "13.8.0"


def verified(library: str | None, problem: Problem = DEEP) -> Record:
    """A record in which the vendor wins, with the version that was verified."""
    made = record(entry(16, 900.0), problem=problem, baseline_us=700.0)
    assert made.baseline is not None
    return replace(made, baseline=replace(made.baseline, library=library))


def answered(record: Record, how: How = "exact", problem: Problem = DEEP) -> Answer:
    config = record.best.config
    return Answer(problem, H100, config, how, "measured", record, 900.0, "a note", vendor=True)


@pytest.mark.parametrize(
    ("library", "version", "serves"),
    [
        (FAULTY, FAULTY, True),
        ("13.0.0", FAULTY, False),
        (None, FAULTY, False),
        (None, MENDED, True),
        (FAULTY, MENDED, True),
        (None, "", True),
    ],
)
def test_faulty_version_serves_only_as_verified(
    library: str | None, version: str, serves: bool
) -> None:
    sound = without_faulty_vendor(answered(verified(library)), version)
    assert sound.vendor == serves
    named = f"; cuBLAS {version} may leave out the end of K = 1032" in sound.note
    assert named == (not serves)


@pytest.mark.parametrize("how", ["range", "nearest", "related"])
def test_verification_of_another_shape_does_not_count(how: How) -> None:
    assert not without_faulty_vendor(answered(verified(FAULTY), how), FAULTY).vendor


def test_untouched_shape_is_served_by_a_faulty_version() -> None:
    flat = Problem(5, 7, 64)
    answer = answered(verified(None, flat), problem=flat)
    assert without_faulty_vendor(answer, FAULTY) == answer


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: FAULTY)


def multiply(case: Case, torch: FakeTorch, problem: Problem = DEEP) -> list[str]:
    """Multiplies twice, asserts that the product is right, and names the calls of the vendor."""
    shapes = (problem.m, problem.k), (problem.k, problem.n), (problem.m, problem.n)
    a, b, out = (torch.on("cuda:0", case.matrix(*shape)) for shape in shapes)
    for _ in range(2):
        case.matmul(a, b, out)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-3)
    return [name for name, _ in torch.products]


@pytest.mark.usefixtures("installed")
def test_matmul_runs_its_kernel_and_warns_once(case: Case, torch: FakeTorch) -> None:
    case.vendor = True
    with warnings_logged() as texts:
        assert multiply(case, torch) == []
    (text,) = texts
    assert text.endswith(f"{NAIVE} runs instead")


@pytest.mark.usefixtures("installed")
def test_matmul_calls_the_vendor_on_untouched_shapes(case: Case, torch: FakeTorch) -> None:
    case.vendor = True
    assert multiply(case, torch, Problem(5, 7, 64)) == ["mm", "mm"]


@pytest.mark.parametrize(
    ("columns", "factors", "serves"),
    [(1032, (1.0, 0.0), True), (1040, (1.0, 0.0), False), (1032, (2.0, 0.0), False)],
    ids=str,
)
def test_verified_vendor_serves_calls_like_the_verified_one(
    case: Case,
    torch: FakeTorch,
    store: Store,
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
    factors: tuple[float, float],
    serves: bool,
) -> None:
    own = verified(FAULTY)
    store.save(replace(own, entries=(replace(own.best, config=NAIVE),)))
    monkeypatch.setattr(cublaslt, "version", lambda: FAULTY)
    case.runtime._find = lambda problem, device, _: lookup(problem, device, store)
    matrices = case.matrix(5, columns)[:, :1032], case.matrix(1032, 7), case.matrix(5, 7)
    a, b, out = (torch.on("cuda:0", matrix) for matrix in matrices)
    case.matmul(a, b, out, *factors)
    assert np.allclose(out.host, factors[0] * a.host @ b.host, atol=1e-3)
    assert bool(torch.products) == serves


def test_matmul_calls_a_mended_vendor(
    case: Case, torch: FakeTorch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: MENDED)
    case.vendor = True
    assert multiply(case, torch) == ["mm", "mm"]


@pytest.mark.usefixtures("installed")
def test_frozen_process_refuses_a_faulty_vendor(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(config=None)
    mode = Mode("frozen", "vendor")
    runtime = Runtime(Driver(case.cuda), case._find, case._plan, case._build, mode)
    case.runtime, case.matmul = runtime, Matmul(runtime)
    torch = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    with pytest.raises(FrozenError, match=r"is not recorded.*may leave out the end of K = 1032"):
        multiply(case, torch)
    assert torch.products == []
    assert multiply(case, torch, Problem(5, 7, 64)) == ["mm", "mm"]


@pytest.mark.parametrize("wrong", [False, True])
def test_wrong_vendor_never_wins_and_is_never_called(
    case: Case, torch: FakeTorch, store: Store, monkeypatch: pytest.MonkeyPatch, wrong: bool
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: FAULTY)
    own = verified(FAULTY)
    own = replace(own, entries=(replace(own.best, config=NAIVE),))
    if wrong:
        fault = "wrong result for small integers: largest error 1 (cuBLAS 13.1.0)"
        provenance = replace(own.provenance, baseline_fault=fault)
        own = replace(own, baseline=None, provenance=provenance)
        assert own.vendor_result == f"wrong: {fault}"
    assert own.vendor_wins != wrong
    store.save(own)

    case.runtime._find = lambda problem, device, _: lookup(problem, device, store)
    assert multiply(case, torch) == ([] if wrong else ["mm", "mm"])
