"""A runtime on the fake GPU, with fake frameworks beside it."""

from __future__ import annotations

import sys

import pytest

from support.fake_frameworks import FakeCuPy, FakeTorch
from support.runtime_case import Case


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.fixture
def torch(case: Case, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    module = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module


@pytest.fixture
def cupy(case: Case, monkeypatch: pytest.MonkeyPatch) -> FakeCuPy:
    module = FakeCuPy(case.cuda)
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.delenv("CUPY_TF32", raising=False)
    return module
