"""Settings and clean-up that all tests rely on."""

from __future__ import annotations

import gc
import os
import pwd
import signal
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from autotune.records import codec

# BLAS runs one thread, as `tune` has it: on a busy machine its threads block each other. NumPy
# reads this when it is imported; if files are named, their folders' conftest.py does that early.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_configure() -> None:
    """Has Ctrl-C end what the tests start, lifts time limits, and collects rarely.

    A shell that starts the suite in the background has Ctrl-C ignored, and `nohup` the end of the
    terminal, which processes hand on.
    Hypothesis's time limits fail on a loaded machine. The collector walks through all that earlier
    tests have left, which takes a tenth of the time at its default thresholds.
    """
    gc.set_threshold(100_000, 20, 20)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    settings.register_profile(
        "untimed", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def _no_shipped_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """They know of no records but their own, whichever the package ships."""
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(Path(os.devnull) / "shipped"))
    monkeypatch.delenv("AUTOTUNE_SITE_DIR", raising=False)
    monkeypatch.delenv("AUTOTUNE_WISDOM_DIR", raising=False)


@pytest.fixture(autouse=True)
def _no_kept_clusters(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a fake driver says of a card reaches neither other tests nor the cache of the user."""
    kept = tmp_path_factory.getbasetemp() / "clusters" / str(id(request.node))
    monkeypatch.setattr("autotune.cuda.bindings.FOLDER", str(kept))


@pytest.fixture
def plausible_times() -> None:
    """Records are held to the times that their device can reach."""


@pytest.fixture(autouse=True)
def _made_up_times(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their records may state times that no GPU reaches, without `plausible_times`."""
    if "plausible_times" not in request.fixturenames:
        monkeypatch.setattr(codec, "ROOFLINE_SHARE", 0.0)
        monkeypatch.setattr(codec, "LEAST_US", 0.0)


@pytest.fixture(scope="session")
def host_objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the kernels compiled for the host, one for all workers of a run."""
    base = tmp_path_factory.getbasetemp()
    return (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "host"


@pytest.fixture
def homeless(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A user without a home and a cache; returns the directory for temporary files."""

    def unknown(_uid: int) -> None:
        raise KeyError

    for name in ("AUTOTUNE_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path
