"""Where things lie: the cache directory, the CUDA sources."""

from __future__ import annotations

import errno
import logging
import os
import re
import stat
import tempfile
from pathlib import Path

import pytest
from support.logged import logs, warnings_logged
from support.paths import ROOT
from support.privileges import without_privileges

from autotune import settings
from autotune.errors import CacheError, MissingError, UsageError


def test_cache_directory_is_the_one_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "mine"))
    assert settings.cache_dir() == tmp_path / "mine"


def test_cache_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AUTOTUNE_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert settings.cache_dir() == tmp_path / "autotune"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("~nobody-of-this-name/cache", "a home that nobody has; correct it"),
        ("{file}", "cannot read the cache .*/file: not a directory"),
        ("{file}/cache", "cannot read the cache .*/file/cache: not a directory"),
        ("{loop}", "cannot read the cache .*/loop: Too many levels of symbolic links"),
    ],
)
def test_cache_that_cannot_be_one_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, message: str
) -> None:
    places = {name: tmp_path / name for name in ("file", "loop")}
    places["file"].touch()
    places["loop"].symlink_to("loop")
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", text.format(**places))
    with pytest.raises(CacheError, match=message):
        settings.cache_dir()


@pytest.mark.parametrize("name", ["AUTOTUNE_CACHE_DIR", "AUTOTUNE_SHIPPED_DIR"])
def test_relative_directory_starts_where_the_process_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(name, "here")
    assert settings.VARIABLES[name]() == tmp_path / "here"


@pytest.mark.parametrize("name", ["secret", "secret/cache"])
def test_unreadable_cache_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    (tmp_path / "secret").mkdir(mode=0)
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / name))
    message = f"cannot read the cache .*/{name}: Permission denied"
    with without_privileges(), pytest.raises(CacheError, match=message):
        settings.cache_dir()


def test_cache_of_the_user_may_not_exist_yet(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "a" / "b"))
    assert settings.cache_dir() == tmp_path / "a" / "b"


def test_cache_without_a_home_is_private_and_said_once(homeless: Path) -> None:
    expected = homeless / f"autotune-{os.geteuid()}"
    with warnings_logged() as texts:
        for _ in range(3):
            assert settings.cache_dir() == expected
    assert stat.S_IMODE(expected.stat().st_mode) == 0o700
    (text,) = texts
    assert text.startswith(f"no home is known, so the cache is {expected}")


@pytest.mark.parametrize("kind", ["link", "file", "open", "foreign"])
def test_directory_of_others_is_no_cache(homeless: Path, kind: str) -> None:
    path = homeless / f"autotune-{os.geteuid()}"
    if kind == "link":
        (homeless / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(homeless / "elsewhere")
    elif kind == "file":
        path.touch()
    else:
        path.mkdir()
        path.chmod(0o755 if kind == "open" else 0o700)
    if kind == "foreign":
        if os.geteuid():
            pytest.skip("only root gives a directory away")
        os.chown(path, 54321, -1)
    with pytest.raises(CacheError, match="not a directory of this user alone"):
        settings.cache_dir()


def test_neither_home_nor_temporary_directory_is_one_line(
    homeless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, f"No usable temporary directory, not {homeless}")

    monkeypatch.setattr(tempfile, "gettempdir", none)
    with pytest.raises(CacheError, match="no home for the cache, and no directory for temporary"):
        settings.cache_dir()


@pytest.mark.parametrize("name", ["AUTOTUNE_SHIPPED_DIR", "AUTOTUNE_PROGRAMS_DIR"])
def test_file_is_not_one_of_the_directories(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, __file__)
    with pytest.raises(UsageError, match=f"{name} is .*; give .*directory, or unset it"):
        settings.VARIABLES[name]()


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        (
            "AUTOTUNE_CACHEDIR",
            "/x",
            "AUTOTUNE_CACHEDIR is not a variable of autotune; did you mean ",
        ),
        ("AUTOTUNE_NATIVE", "off", "AUTOTUNE_NATIVE is off; give 0 or 1"),
        ("AUTOTUNE_NVRTC", "11", "AUTOTUNE_NVRTC is 11; give 12 or 13"),
        ("AUTOTUNE_MODE", "cold", "AUTOTUNE_MODE: mode is cold"),
        ("AUTOTUNE_CACHE_DIR", "/dev/null", "cannot read the cache /dev/null: not a directory"),
        ("AUTOTUNE_SITE_DIR", "/none/at/all", "AUTOTUNE_SITE_DIR names /none/at/all, which"),
    ],
)
def test_wrong_variable_is_named(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, fault: str
) -> None:
    assert settings.misspelt() == []
    monkeypatch.setenv(name, value)
    (line,) = [settings.fault(name)] if name in settings.VARIABLES else settings.misspelt()
    assert line.startswith(fault)


def test_every_variable_that_is_read_is_listed() -> None:
    package = Path(settings.__file__).parent
    texts = [path.read_text("utf-8") for path in package.rglob("*.py")]
    readers = [text for text in texts if re.search(r"\bos\.(environ|getenv)\b", text)]
    read = {*re.findall(r'"(_?[A-Z][A-Z0-9_]*[A-Z0-9])"', "\n".join(readers))}
    assert read == settings.VARIABLES.keys()


def test_documents_list_every_variable() -> None:
    page = (ROOT / "docs" / "environment.md").read_text("utf-8").partition("## Of libraries")[0]
    assert re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) == [*settings.VARIABLES]


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


def test_shipped_records_are_read_from_the_named_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "site"))
    assert settings.shipped_dir() == tmp_path / "site"


def test_records_of_a_site_have_a_search_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings.site_dirs() == []
    places = tmp_path / "team", tmp_path / "company"
    monkeypatch.setenv("AUTOTUNE_SITE_DIR", os.pathsep.join(map(str, ("", *places))))
    assert settings.site_dirs() == [*places]


def test_message_is_logged_once_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        settings.warn_once("50 % of /a/file is broken")
    assert caplog.record_tuples == [("autotune", logging.WARNING, "50 % of /a/file is broken")]


def test_former_search_path_is_read_with_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_WISDOM_DIR", str(tmp_path / "company"))
    monkeypatch.setenv("AUTOTUNE_SITE_DIR", str(tmp_path / "team"))
    settings.warn_once.cache_clear()
    with logs("AUTOTUNE_WISDOM_DIR is now AUTOTUNE_SITE_DIR; rename it"):
        assert settings.site_dirs() == [tmp_path / "team", tmp_path / "company"]
