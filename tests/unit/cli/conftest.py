"""A machine without a GPU, for every verb."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import own_machine


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The empty cache of a machine with one recording and no GPU."""
    return own_machine(monkeypatch, tmp_path)
