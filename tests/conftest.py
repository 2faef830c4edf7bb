"""What all tests share: they know of no records but their own, whichever the package ships."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_wisdom(monkeypatch: pytest.MonkeyPatch) -> None:
    nowhere = Path(os.devnull) / "wisdom"
    monkeypatch.setenv("AUTOTUNE_WISDOM_DIR", str(nowhere))
