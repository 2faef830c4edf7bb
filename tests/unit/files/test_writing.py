"""Whole writes: a reader sees the old file or the new one, and nothing else is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.full_disk import small_files

from autotune.errors import CacheError
from autotune.files import copy_aside, write, write_whole


@pytest.mark.parametrize("durable", [True, False])
def test_file_is_replaced_whole(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old and longer")
    write_whole(path, b"new", durable=durable)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"new")]


def test_failed_write_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with small_files(100), pytest.raises(OSError, match="File too large"):
        write_whole(path, bytes(5000))
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", b"old")]


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_whole(tmp_path / "none" / "file", b"")


def test_leftover_of_a_killed_writer_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "file.tmp").write_text("half")
    write(tmp_path / "file", b"whole")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_copies_aside_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    copies = [copy_aside(path, "broken") for _ in range(2)]
    assert [copy.name for copy in copies] == ["file.broken-1", "file.broken-2"]


def test_missing_file_cannot_be_copied_aside(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read"):
        copy_aside(tmp_path / "file", "broken")
