"""Fixtures that several rooms share."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune import settings
from autotune.records import Store


@pytest.fixture(autouse=True)
def _forgotten_warnings() -> None:
    settings.warn_once.cache_clear()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)
