"""Locks of files and folders: one holder, no file left behind, no wait without an end."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune import files
from autotune.errors import CacheError
from autotune.files import writing


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LOCK_SECONDS", 0.05)


def test_locked_file_is_created_with_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "a" / "file"
    with files.locked_file(path) as file:
        files.append(file, b"line\n", sync=False)
        with pytest.raises(TimeoutError), files.locked_file(path):
            pass
    assert [found.name for found in path.parent.iterdir()] == ["file"]
    with files.locked_file(path) as file:
        assert file.read() == b"line\n"


@pytest.mark.parametrize("change", [lambda path: files.write_whole(path, b"new"), Path.unlink])
def test_lock_is_of_the_file_that_has_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    path, flock = tmp_path / "file", fcntl.flock
    waits: list[int] = []
    path.write_bytes(b"old")

    def changing(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if not waits:  # another process replaces or removes the file while this one waits
            waits.append(descriptor)
            change(path)

    monkeypatch.setattr(fcntl, "flock", changing)
    with files.locked_file(path) as file:
        assert file.read() == (b"" if change is Path.unlink else b"new")
        assert os.path.samestat(os.fstat(file.fileno()), path.stat())


def test_locked_folder_has_no_new_file(tmp_path: Path) -> None:
    with files.locked_folder(tmp_path):
        with pytest.raises(TimeoutError), files.locked_folder(tmp_path):
            pass
        assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK])
def test_folder_that_cannot_be_locked_is_used_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    _without_locks(monkeypatch, code)
    entered = []
    for folder in (tmp_path, tmp_path / "none"):
        with files.locked_folder(folder):
            entered.append(folder)
    assert entered == [tmp_path, tmp_path / "none"]


@pytest.mark.parametrize("code", sorted(writing.LOCKLESS))
def test_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    _without_locks(monkeypatch, code)
    message = rf"{tmp_path}: its file system has no file locks .*set AUTOTUNE_CACHE_DIR"
    with pytest.raises(CacheError, match=message), files.locked(tmp_path):
        pass


@pytest.mark.parametrize("target", ["file", "missing"])
def test_lock_that_is_a_link_is_refused(tmp_path: Path, target: str) -> None:
    cache = tmp_path / "cache"
    cache.mkdir()
    (tmp_path / "file").write_text("years")
    (cache / writing.LOCK).symlink_to(tmp_path / target)
    message = r"\.lock: cannot be written: Is a symbolic link"
    with pytest.raises(CacheError, match=message), files.locked(cache):
        pass
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["file"]


def test_locked_file_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    with (
        pytest.raises(OSError, match="Is a symbolic link"),
        files.locked_file(tmp_path / "link"),
    ):
        pass
    assert not (tmp_path / "file").exists()


def _without_locks(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
