"""Fixtures of the look-ups' tests."""

from __future__ import annotations

import pytest

from autotune.model import space


@pytest.fixture
def no_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the model no configurations to choose from, unless a test offers some."""
    monkeypatch.setattr("autotune.lookup.nearest.members_of", lambda *_: [])
    monkeypatch.setattr("autotune.lookup.nearest.variants", lambda *_: [])
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(()))
