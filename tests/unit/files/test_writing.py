"""Folders, locks and whole writes of the cache."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.full_disk import small_files

from autotune import files
from autotune.errors import CacheError
from autotune.files import (
    append,
    append_line,
    copy_aside,
    limits,
    opened,
    write,
    write_whole,
    writing,
)
from autotune.files.writing import cut_torn_line


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
    assert copy_aside(tmp_path / "file", "broken").stat().st_size == 2**26


def test_file_larger_than_any_of_ours_is_not_copied(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    os.truncate(tmp_path / "file", 2**40)  # sparse: it takes no room, but its copy would
    with pytest.raises(
        CacheError, match=r"File has 1099511627776 bytes; at most \d+ are read\), so not replaced"
    ):
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


def test_link_moved_aside_replaces_no_other(tmp_path: Path) -> None:
    (tmp_path / "file.broken-1").symlink_to("none")
    (tmp_path / "file").symlink_to("elsewhere")
    assert copy_aside(tmp_path / "file", "broken") == tmp_path / "file.broken-2"
    assert (tmp_path / "file.broken-2").readlink() == Path("elsewhere")
    assert not (tmp_path / "file").is_symlink()


@pytest.mark.parametrize("length", [0, 1, limits.LINE - 1, limits.LINE])
@pytest.mark.parametrize("before", [b"", b"line\n", b"line\n" * (limits.LINE // 4)])
def test_torn_line_of_any_length_is_cut(tmp_path: Path, before: bytes, length: int) -> None:
    (tmp_path / "file").write_bytes(before + b"x" * length)
    with opened(tmp_path / "file", append=True) as file:
        assert cut_torn_line(file) == len(before)
    assert (tmp_path / "file").read_bytes() == before


def test_lines_are_appended_all_or_none(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"line\n")
    with opened(tmp_path / "file", append=True) as file:
        with small_files(20), pytest.raises(OSError, match="File too large"):
            append(file, b"next line\n" * 2, sync=True)
        assert (tmp_path / "file").read_bytes() == b"line\n"
        assert append(file, b"next line\n" * 2, sync=True) == 25
    assert (tmp_path / "file").read_bytes() == b"line\nnext line\nnext line\n"


def test_missing_file_cannot_be_copied_aside(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read"):
        copy_aside(tmp_path / "file", "broken")


def modes_of(*made: Path) -> list[int]:
    return [stat.S_IMODE(path.stat().st_mode) for path in made]


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    """Sets the umask, which the test restores."""
    before = os.umask(0o022)
    os.umask(before)
    yield os.umask
    os.umask(before)


def test_directories_of_a_home_are_for_this_user_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(0o002)
    monkeypatch.setenv("HOME", str(tmp_path))
    tmp_path.chmod(0o755)
    files.ensure(tmp_path / "a" / "b")
    assert modes_of(tmp_path / "a", tmp_path / "a" / "b") == [0o700, 0o700]


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o755), (0o002, 0o775), (0o077, 0o700)])
def test_umask_decides_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    umask: Callable[[int], int],
    mask: int,
    mode: int,
) -> None:
    umask(mask)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    files.ensure(tmp_path / "a" / "b")
    assert modes_of(tmp_path / "a", tmp_path / "a" / "b") == [mode, mode]


def test_directory_that_a_group_shares_stays_the_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(0o002)
    monkeypatch.setenv("HOME", str(tmp_path))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    files.ensure(shared / "records" / "h100")
    assert modes_of(shared / "records", shared / "records" / "h100") == [0o775, 0o775]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o1777])
def test_existing_directory_is_left_as_it_is(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    assert stat.S_IMODE(files.ensure(tmp_path / "shared").stat().st_mode) == mode


def test_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(CacheError, match=r"taken/cache: not a directory; set AUTOTUNE_CACHE_DIR"):
        files.ensure(tmp_path / "taken" / "cache")


def test_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(self: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(CacheError, match=r"new: No space left on device; set AUTOTUNE_CACHE_DIR"):
        files.ensure(tmp_path / "new")


def test_read_only_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir(mode=0o500)
    if os.access(tmp_path / "fixed", os.W_OK):
        pytest.skip("this user, root, may write to read-only directories")
    with pytest.raises(CacheError, match=r"fixed: not writable; set AUTOTUNE_CACHE_DIR"):
        files.ensure(tmp_path / "fixed")


def test_read_only_file_system_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CacheError, match=rf"{tmp_path}: not writable; set AUTOTUNE_CACHE_DIR"):
        files.ensure(tmp_path)


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.mark.parametrize("folder", ["records", "records/h100"])
def test_folder_behind_anothers_link_is_not_written(cache: Path, folder: str) -> None:
    """A member of the group could have this user write into a folder of his."""
    (cache.parent / "home").mkdir()
    link = cache / folder
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(cache.parent / "home")
    if os.geteuid():
        pytest.skip("only root gives a link away")
    os.chown(link, 54321, -1, follow_symlinks=False)
    with pytest.raises(CacheError, match="a link of user 54321; remove it"):
        files.ensure(cache / "records" / "h100")
    assert (cache.parent / "home").is_dir()


def test_folder_behind_a_link_of_ones_own_is_used(cache: Path) -> None:
    (cache.parent / "scratch").mkdir()
    (cache / "programs").symlink_to(cache.parent / "scratch")
    assert files.ensure(cache / "programs").is_symlink()


def no_directory() -> str:
    raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")


def test_temporary_folder_is_deleted_with_its_files() -> None:
    with files.temporary_folder() as folder:
        (folder / "file").write_text("content")
    assert not folder.exists()


def test_cache_takes_temporary_files_without_a_directory(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", no_directory)
    with files.temporary_folder() as folder:
        assert folder.is_relative_to(cache)
    assert files.temporary_dir() == cache / "temporary"


def test_no_place_for_temporary_files_is_one_line(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", no_directory)
    (cache / "temporary").touch()
    message = "cannot write to the cache .*temporary: not a directory"
    with pytest.raises(CacheError, match=message), files.temporary_folder():
        pass


@pytest.mark.parametrize("code", sorted(writing.FULL))
def test_full_disk_of_temporary_files_is_named(code: int) -> None:
    with (
        pytest.raises(CacheError, match=r"cannot write temporary files to .*; make room or set"),
        files.temporary_folder(),
    ):
        raise OSError(code, os.strerror(code))


def test_vanished_temporary_directory_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    message = "cannot write temporary files to .*/gone: No such file"
    with pytest.raises(CacheError, match=message), files.temporary_folder():
        pass


def test_errors_of_the_work_stay_as_they_are() -> None:
    with pytest.raises(FileNotFoundError), files.temporary_folder() as folder:
        (folder / "none" / "file").read_bytes()


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
    with pytest.raises(OSError, match="Is a symbolic link"), files.locked_file(tmp_path / "link"):
        pass
    assert not (tmp_path / "file").exists()


def _without_locks(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    def flock(*_: int) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(fcntl, "flock", flock)
