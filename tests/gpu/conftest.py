"""Fixtures of the tests that need a GPU; without one they skip and say why."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from autotune.errors import MissingError
from autotune.gpu.session import Session


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    try:
        session = Session()
    except MissingError as error:
        pytest.skip(str(error))
    with session:
        yield session


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program cache of this run."""
    return tmp_path_factory.mktemp("programs")
