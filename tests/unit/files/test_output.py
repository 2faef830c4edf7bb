"""Files that the user named: nothing of the user's is lost, and links, pipes and devices stay."""

from __future__ import annotations

import gzip
import lzma
import os
import select
import stat
import threading
from pathlib import Path

import pytest
from support.full_disk import small_files
from support.privileges import without_privileges

from autotune.errors import AutotuneError
from autotune.files import output

TEXT = output.OutputKind("text", (b"made by autotune",))
OLD, NEW = b"made by autotune in 2025", b"made by autotune in 2026"


@pytest.mark.parametrize("old", [None, b"", OLD, gzip.compress(OLD, mtime=0), lzma.compress(OLD)])
def test_new_empty_and_own_files_are_written(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "file"
    if old is not None:
        path.write_bytes(old)
    output.write(path, NEW, TEXT)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", NEW)]


@pytest.mark.parametrize(
    "old", [b"thesis", b"made by hand", gzip.compress(b"thesis", mtime=0), b"\x1f\x8b"]
)
def test_file_of_the_user_is_never_replaced(tmp_path: Path, old: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(old)
    message = "file exists and is not a text of autotune; give another path, or remove it"
    with pytest.raises(AutotuneError, match=message):
        output.write(path, NEW, TEXT)
    assert path.read_bytes() == old


def test_mode_and_owner_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    path.chmod(0o640)
    if not os.geteuid():
        os.chown(path, 54321, 54322)
    before = path.stat()
    output.write(path, NEW, TEXT)
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )


def test_read_only_file_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tmp_path.chmod(0o777)
    monkeypatch.chdir(tmp_path)
    path = Path("file")
    path.write_bytes(OLD)
    path.chmod(0o444)
    with without_privileges(), pytest.raises(AutotuneError, match="Permission denied"):
        output.write(path, NEW, TEXT)
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("old", [None, OLD])
def test_target_of_a_link_is_written(tmp_path: Path, old: bytes | None) -> None:
    target, link = tmp_path / "folder" / "target", tmp_path / "link"
    target.parent.mkdir()
    if old is not None:
        target.write_bytes(old)
    link.symlink_to("folder/target")
    output.write(link, NEW, TEXT)
    assert (link.is_symlink(), target.read_bytes()) == (True, NEW)


def test_thesis_at_the_end_of_a_link_stays(tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("years")
    (tmp_path / "link").symlink_to("thesis")
    with pytest.raises(AutotuneError, match="link exists and is not a text of autotune"):
        output.write(tmp_path / "link", NEW, TEXT)
    assert (tmp_path / "thesis").read_text() == "years"


@pytest.mark.parametrize("linked", [False, True])
def test_device_is_written_into(tmp_path: Path, linked: bool) -> None:
    device = path = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")
    if linked:
        path = tmp_path / "link"
        path.symlink_to(device)
    output.write(path, NEW, TEXT)
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert path.is_symlink() == linked


def test_reader_of_a_pipe_gets_everything(tmp_path: Path) -> None:
    pipe, data = tmp_path / "pipe", OLD * 100_000  # more than a pipe holds
    os.mkfifo(pipe)
    received: list[bytes] = []
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    os.set_blocking(descriptor, True)

    def read() -> None:
        select.select([descriptor], [], [])
        with os.fdopen(descriptor, "rb") as file:
            received.append(file.read())

    reader = threading.Thread(target=read)
    reader.start()
    output.write(pipe, data, TEXT)
    reader.join()
    assert received == [data]
    assert stat.S_ISFIFO(pipe.lstat().st_mode)


def test_pipe_without_a_reader_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(AutotuneError, match="nobody reads this pipe"):
        output.write(tmp_path / "pipe", NEW, TEXT)


def test_directory_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match="it is a directory"):
        output.write(tmp_path, NEW, TEXT)


def test_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(AutotuneError, match="Too many levels of symbolic links"):
        output.write(tmp_path / "loop", NEW, TEXT)


def test_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(OLD)
    message = r"cannot write .*: File too large \(24 bytes\); give another path"
    with small_files(10), pytest.raises(AutotuneError, match=message):
        output.write(path, NEW, TEXT)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [("file", OLD)]
