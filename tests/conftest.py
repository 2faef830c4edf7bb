"""What the tests count on."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Has Ctrl-C end what the tests start: a shell that starts the suite in the background has it
    ignored, which processes hand on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _no_shipped_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """They know of no records but their own, whichever the package ships."""
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(Path(os.devnull) / "shipped"))
