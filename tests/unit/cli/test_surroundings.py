"""Poor surroundings: no home, no temporary directory, wrong variables. A line, or a default."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest
from support.command_line import run
from support.paths import ROOT
from support.sample_recording import DEVICE, PROBLEM

SHAPE = PROBLEM.shape
SPEC = str(ROOT / "examples" / "saxpy_spec.py")
VERBS = (
    ("cache",),
    ("cache", "verify"),
    ("best", "64x64x64", "--device", "h100"),
    ("tune", SHAPE, "--device", DEVICE, "--trials", "2", "--quiet"),
    ("occupancy", "a100", "--tile-width", "16"),
    ("occupancy", SPEC, "a100"),
    ("doctor",),
)


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pages and other files go to the folder beside the cache."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def no_temporary(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none)


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_verbs_run_without_a_home(
    homeless: Path, verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*verb) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "no home" in line]
    place = homeless / f"autotune-{os.geteuid()}"
    assert said == [
        f"warning: no home is known, so the cache is {place}; set AUTOTUNE_CACHE_DIR to keep it"
    ]


@pytest.mark.usefixtures("homeless", "no_temporary")
@pytest.mark.parametrize("verb", VERBS[:-1], ids=" ".join)
def test_no_place_at_all_is_one_line(
    verb: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*verb) == 1
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert line.startswith("error: no home for the cache, and no directory for temporary files")


@pytest.mark.usefixtures("homeless", "no_temporary")
def test_doctor_says_that_there_is_no_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("doctor") == 1
    out = capsys.readouterr().out
    assert "checks fail: compilation, cache, temporary files" in out
    assert "report this as a bug" not in out


@pytest.mark.usefixtures("no_temporary")
@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_cache_serves_for_temporary_files(verb: tuple[str, ...]) -> None:
    assert run(*verb) == 0


@pytest.mark.parametrize("verb", VERBS[:-1], ids=" ".join)
def test_cache_that_is_a_file_is_an_error_everywhere(
    verb: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", __file__)
    assert run(*verb) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith(f"error: cannot read the cache {__file__}: not a directory; set AUTO")


def test_storage_in_a_directory_that_is_gone_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    url = "sqlite:///study.db"
    assert run("tune", SHAPE, "--device", DEVICE, "--storage", url, "--quiet") == 1
    line = f"error: {url}: the storage failed: [Errno 2] No such file or directory"
    assert capsys.readouterr().err.splitlines()[-1].startswith(line)


def test_misspelt_variable_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHEDIR", "/scratch")
    assert run("cache") == 0
    assert capsys.readouterr().err == (
        "warning: AUTOTUNE_CACHEDIR is not a variable of autotune; did you mean "
        "AUTOTUNE_CACHE_DIR?\n"
    )


def test_doctor_names_wrong_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHEDIR", "/scratch")
    monkeypatch.setenv("AUTOTUNE_NATIVE", "off")
    assert run("doctor") == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "fails AUTOTUNE_NATIVE AUTOTUNE_NATIVE is off; give 0 or 1" in out
    assert "fails variables AUTOTUNE_CACHEDIR is not a variable of autotune; did you mean" in out
    assert "report this as a bug" not in out
