"""Where things lie: the cache directory, the CUDA sources, nvcc."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autotune import settings
from autotune.errors import CacheError, MissingError


def test_cache_directory_is_the_one_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "mine"))
    assert settings.cache_dir() == tmp_path / "mine"


def test_cache_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOTUNE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.cache_dir() == tmp_path / "autotune"


def test_relative_cache_directory_stays_where_it_was_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", "here")
    assert settings.cache_dir() == tmp_path / "here"


def test_reading_the_cache_directory_creates_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "mine"))
    assert not settings.cache_dir().exists()


def test_sources_of_a_checkout_lie_beside_the_package() -> None:
    assert settings.source_dir() == Path(settings.__file__).parents[1] / "cuda_src"


def test_sources_of_a_wheel_lie_in_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "autotune" / "_cuda_src").mkdir(parents=True)
    monkeypatch.setattr(settings, "__file__", str(tmp_path / "autotune" / "settings.py"))
    assert settings.source_dir() == tmp_path / "autotune" / "_cuda_src"


def test_missing_sources_say_how_to_get_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(settings, "__file__", str(tmp_path / "autotune" / "settings.py"))
    with pytest.raises(MissingError, match="pip install --force-reinstall tile-autotune"):
        settings.source_dir()


def test_nvcc_is_found_in_cuda_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = tmp_path / "bin" / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(mode=0o755)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert settings.nvcc() == nvcc


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
    settings.ensure(tmp_path / "a" / "b")
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
    settings.ensure(tmp_path / "a" / "b")
    assert modes_of(tmp_path / "a", tmp_path / "a" / "b") == [mode, mode]


def test_directory_that_a_group_shares_stays_the_groups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, umask: Callable[[int], int]
) -> None:
    umask(0o002)
    monkeypatch.setenv("HOME", str(tmp_path))
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    settings.ensure(shared / "records" / "h100")
    assert modes_of(shared / "records", shared / "records" / "h100") == [0o775, 0o775]


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o777, 0o1777])
def test_existing_directory_is_left_as_it_is(tmp_path: Path, mode: int) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(mode)
    assert stat.S_IMODE(settings.ensure(tmp_path / "shared").stat().st_mode) == mode


def test_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(CacheError, match=r"taken/cache: not a directory; set AUTOTUNE_CACHE_DIR"):
        settings.ensure(tmp_path / "taken" / "cache")


def test_full_disk_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(self: Path, **_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    monkeypatch.setattr(Path, "mkdir", full)
    with pytest.raises(CacheError, match=r"new: No space left on device; set AUTOTUNE_CACHE_DIR"):
        settings.ensure(tmp_path / "new")


def test_read_only_directory_is_named(tmp_path: Path) -> None:
    (tmp_path / "fixed").mkdir(mode=0o500)
    if os.access(tmp_path / "fixed", os.W_OK):
        pytest.skip("this user, root, may write to read-only directories")
    with pytest.raises(CacheError, match=r"fixed: not writable; set AUTOTUNE_CACHE_DIR"):
        settings.ensure(tmp_path / "fixed")


def test_read_only_file_system_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(CacheError, match=rf"{tmp_path}: not writable; set AUTOTUNE_CACHE_DIR"):
        settings.ensure(tmp_path)


def test_shipped_records_are_read_from_the_named_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "site"))
    assert settings.shipped_dir() == tmp_path / "site"


def test_records_of_a_site_have_a_search_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings.wisdom_dirs() == []
    places = tmp_path / "team", tmp_path / "company"
    monkeypatch.setenv("AUTOTUNE_WISDOM_DIR", os.pathsep.join(map(str, ("", *places))))
    assert settings.wisdom_dirs() == [*places]
