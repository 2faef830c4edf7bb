"""Whole writes: a reader sees the old file or the new one, and nothing else is left."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest
from support.full_disk import small_files

from autotune.errors import CacheError
from autotune.files import (
    append,
    append_line,
    copy_aside,
    cut_torn_line,
    move_aside,
    opened,
    write,
    write_whole,
)
from autotune.files.writing import BLOCK


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


def test_leftover_of_a_killed_writer_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        write(tmp_path / "file", b"half")
    monkeypatch.undo()
    write(tmp_path / "file", b"whole")
    assert (tmp_path / "file").read_bytes() == b"whole"


def test_temporary_files_cannot_be_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A link at the name of a temporary file would lead the writer to another's file."""
    names: list[str] = []
    monkeypatch.setattr(Path, "replace", lambda path, _: names.append(path.name))
    for _ in range(2):
        write(tmp_path / "file", b"")
    assert len({*names}) == 2
    assert all(name.startswith("file.") and name.endswith(".tmp") for name in names)


def test_link_at_a_temporary_name_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", bytes)
    (tmp_path / "thesis").write_text("years")
    (tmp_path / f"file.{bytes(8).hex()}.tmp").symlink_to("thesis")
    with pytest.raises(CacheError, match="File exists"):
        write(tmp_path / "file", b"new")
    assert (tmp_path / "thesis").read_text() == "years"


def test_link_in_place_of_a_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years")
    (tmp_path / "file").symlink_to("thesis")
    write(tmp_path / "file", b"new")
    assert (tmp_path / "thesis").read_text() == "years"
    assert not (tmp_path / "file").is_symlink()


def test_link_is_not_appended_to(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years")
    (tmp_path / "file").symlink_to("thesis")
    with pytest.raises(CacheError, match="Is a symbolic link"):
        append_line(tmp_path / "file", b"line")
    assert (tmp_path / "thesis").read_text() == "years"


def test_target_of_a_link_is_not_copied_aside(tmp_path: Path) -> None:
    """Whoever shares the cache could read it in the copy."""
    (tmp_path / "thesis").write_text("years")
    (tmp_path / "file").symlink_to("thesis")
    assert copy_aside(tmp_path / "file", "broken").is_symlink()
    assert not (tmp_path / "file").is_symlink()


def test_name_as_long_as_any_has_a_temporary_one(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 127)
    write(path, b"content")
    assert path.read_bytes() == b"content"


def killed(*_: object) -> None:
    raise KeyboardInterrupt


def test_copies_aside_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("content")
    copies = [copy_aside(path, "broken") for _ in range(2)]
    assert [copy.name for copy in copies] == ["file.broken-1", "file.broken-2"]


def test_file_of_any_size_is_copied_aside(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 2**26)
    tracemalloc.start()
    try:
        copy = copy_aside(tmp_path / "file", "broken")
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert copy.stat().st_size == 2**26


def test_file_larger_than_any_of_ours_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 2**40)  # sparse: it takes no room, but its copy would
    with pytest.raises(CacheError, match="has 1099511627776 bytes, so not copied or replaced"):
        copy_aside(tmp_path / "file", "broken")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_last_line_longer_than_any_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("whole\n")
    os.truncate(tmp_path / "file", 2**40)
    with opened(tmp_path / "file", append=True) as file, pytest.raises(OSError, match="last line"):
        cut_torn_line(file)
    assert (tmp_path / "file").stat().st_size == 2**40


def test_pipe_is_not_copied_aside(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "file")
    with pytest.raises(CacheError, match=r"cannot be read \(Is a named pipe.*move it away"):
        copy_aside(tmp_path / "file", "broken")


def test_file_moved_aside_replaces_no_other(tmp_path: Path) -> None:
    (tmp_path / "file.broken-1").symlink_to("none")
    (tmp_path / "file").write_bytes(b"content")
    assert move_aside(tmp_path / "file", "broken") == tmp_path / "file.broken-2"
    assert (tmp_path / "file.broken-2").read_bytes() == b"content"
    assert not (tmp_path / "file").exists()


@pytest.mark.parametrize("length", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK])
@pytest.mark.parametrize("before", [b"", b"line\n", b"line\n" * BLOCK])
def test_torn_line_of_any_length_is_cut(tmp_path: Path, before: bytes, length: int) -> None:
    (tmp_path / "file").write_bytes(before + b"x" * length)
    with opened(tmp_path / "file", append=True) as file:
        assert cut_torn_line(file) == len(before)
    assert (tmp_path / "file").read_bytes() == before


def test_lines_are_appended_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"line\ntorn")
    with opened(tmp_path / "file", append=True) as file:
        with small_files(20), pytest.raises(OSError, match="File too large"):
            append(file, b"next line\n" * 2, sync=True)
        assert (tmp_path / "file").read_bytes() == b"line\n"
        assert append(file, b"next line\n" * 2, sync=True) == 25
    assert (tmp_path / "file").read_bytes() == b"line\nnext line\nnext line\n"


def test_missing_file_cannot_be_copied_aside(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read"):
        copy_aside(tmp_path / "file", "broken")
