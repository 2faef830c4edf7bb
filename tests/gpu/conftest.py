"""Fixtures of the tests that need a GPU; without one they skip and say why."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune import runtime
from autotune.device import Device
from autotune.errors import MissingError
from autotune.measure.devices import probe
from autotune.measure.session import Session, open_session
from autotune.runtime import UntunedWarning
from autotune.runtime.launcher import Driver


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    try:
        session = open_session()
    except MissingError as error:
        pytest.skip(str(error))
    with session:
        yield session


@pytest.fixture(scope="module")
def device() -> Device:
    try:
        return probe()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def programs(pytestconfig: pytest.Config) -> Path:
    """The program cache, shared by the processes of a run and kept for the next one."""
    return pytestconfig.cache.mkdir("programs")


@pytest.fixture(scope="module")
def driver() -> Driver:
    try:
        return Driver.load()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def torch() -> Any:
    module = pytest.importorskip("torch")
    if not module.cuda.is_available():
        pytest.skip("PyTorch sees no GPU")
    return module


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def untuned(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache for products that nobody has tuned, without the warning that says so."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(cache))
    runtime.current.cache_clear()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntunedWarning)
        yield
    runtime.current.cache_clear()
