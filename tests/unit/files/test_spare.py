"""Files that go elsewhere because they cannot be written where they belong."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autotune import settings
from autotune.files import spare


@pytest.fixture
def parents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Two folders that may take a file."""
    paths = [tmp_path / "first", tmp_path / "second"]
    for path in paths:
        path.mkdir()
    monkeypatch.setattr(settings, "spare_dirs", lambda: paths)
    return paths


def own(parent: Path) -> Path:
    return parent / f"autotune-rescued-{os.geteuid()}"


def test_first_folder_that_takes_a_file_gets_it(parents: list[Path]) -> None:
    own(parents[0]).write_text("a file in the folder's place")
    path = spare.keep("record.json", b"{}")
    assert path == own(parents[1]) / "record.json"
    assert path.read_bytes() == b"{}"


def test_folder_that_others_can_write_is_not_used(parents: list[Path]) -> None:
    own(parents[0]).mkdir()
    own(parents[0]).chmod(0o777)
    assert spare.keep("record.json", b"{}") == own(parents[1]) / "record.json"
    assert [*own(parents[0]).iterdir()] == []


def test_file_that_fits_nowhere_has_no_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "spare_dirs", list)
    assert spare.keep("record.json", b"{}") is None
