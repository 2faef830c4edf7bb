"""Reads of files that may be anything: each ends, with the content or with the kind or the size."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from autotune import files


def test_content_up_to_the_limit_is_read(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert files.read(path, 5) == b"12345"
    path.write_bytes(b"")
    assert files.read(path, 0) == b""


def test_larger_file_is_refused_by_both_sizes(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    os.truncate(path, 2**40)  # sparse: reading it would fill the memory
    with pytest.raises(OSError, match="File has 1099511627776 bytes; at most 5 are read") as error:
        files.read(path, 5)
    assert error.value.filename == str(path)


@pytest.mark.parametrize(("limit", "readable"), [(4096, True), (2000, False)])
def test_growing_file_is_read_to_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, readable: bool
) -> None:
    path, fstat = tmp_path / "file", os.fstat
    path.write_bytes(bytes(1000))

    def grown(descriptor: int) -> os.stat_result:
        status = fstat(descriptor)
        path.write_bytes(bytes(min(2 * status.st_size, 4000)))
        return status

    monkeypatch.setattr(os, "fstat", grown)
    if readable:
        assert len(files.read(path, limit)) == 4000
    else:
        with pytest.raises(OSError, match="at most 2000 are read"):
            files.read(path, limit)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(path))


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "Is a named pipe, not a regular file"),
        (os.mkdir, "Is a directory, not a regular file"),
        (_socket, "Is a socket, not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "Is a character device, not a regular file"),
        (lambda path: path.symlink_to("file"), "Too many levels of symbolic links"),
        (lambda path: path.symlink_to("none"), "No such file or directory"),
    ],
    ids=["named pipe", "directory", "socket", "zeros", "loop", "dangling"],
)
def test_other_kinds_of_files_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], object], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket has at most 107 bytes
    make(Path("file"))
    with pytest.raises(OSError, match=kind):
        files.read(Path("file"), 100)


def test_pipe_put_in_place_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, stat = tmp_path / "file", Path.stat
    path.touch()

    def replaced(name: Path) -> os.stat_result:
        status = stat(name)
        path.unlink()
        os.mkfifo(path)
        return status

    monkeypatch.setattr(Path, "stat", replaced)
    with pytest.raises(OSError, match="Is a named pipe"):
        files.read(path, 100)
