"""Folders that the package makes: of the cache, and for temporary files."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune import files
from autotune.errors import CacheError
from autotune.files import writing


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
