"""Fixtures that several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import fake_cublaslt

from autotune import settings
from autotune.cuda import cublaslt
from autotune.records import Store


@pytest.fixture(autouse=True)
def _forgotten_warnings() -> None:
    settings.warn_once.cache_clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.fixture(scope="session")
def built_cublaslt(tmp_path_factory: pytest.TempPathFactory) -> str:
    return fake_cublaslt.built(tmp_path_factory.mktemp("cublaslt"))


@pytest.fixture
def _fake_cublaslt(built_cublaslt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fake cuBLASLt on host memory, as the installed library."""
    monkeypatch.setattr(cublaslt, "library_path", lambda _: built_cublaslt)
