"""A runtime on the fake GPU, and a fake PyTorch beside it."""

from __future__ import annotations

import sys

import pytest
from support.fake_frameworks import FakeTorch
from support.runtime_case import Case


@pytest.fixture
def case() -> Case:
    return Case()


@pytest.fixture
def torch(case: Case, monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    module = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", module)
    return module
