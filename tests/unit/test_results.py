"""Result files under `docs/results` say what they were measured on and made with."""

from __future__ import annotations

import gzip
import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from support.paths import ROOT
from support.results import RESULTS, archives, recorded

TRIALS, DRAWN = archives("trials"), archives("drawn")


FILES = sorted(RESULTS.rglob("*.json"))
SUITES = sorted(RESULTS.rglob("suite-*.json"))


ALLOWED = {".json", ".md", ".gz", ".zip"}


MOST_FILES = 80


def name_of(path: Path) -> str:
    return str(path.relative_to(RESULTS))


def check(device: Any, driver: Any, toolkit: Any, commit: Any, date: Any) -> None:
    """Fails unless all are there, the commit is a hash and the date has a time zone."""
    assert all(isinstance(text, str) and text for text in (device, driver, toolkit))
    assert re.match(r"[0-9a-f]{7,40}\b", commit)
    assert datetime.fromisoformat(date).tzinfo is not None


def test_there_are_results() -> None:
    assert FILES
    assert TRIALS
    assert DRAWN


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_result_files_carry_their_provenance(path: Path) -> None:
    data = json.loads(path.read_text(encoding="utf-8"))
    check(*(data.get(name) for name in ("device", "driver", "toolkit", "commit", "date")))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_result_files_name_their_cublas(path: Path) -> None:
    cublas = json.loads(path.read_text(encoding="utf-8")).get("cublas")
    assert isinstance(cublas, str)
    assert re.match(r"\d+\.\d+|not recorded|not used$", cublas)


@pytest.mark.parametrize("path", SUITES, ids=name_of)
def test_suites_ran_beside_cublas(path: Path) -> None:
    assert json.loads(path.read_text(encoding="utf-8"))["cublas"] != "not used"


@pytest.mark.parametrize("path", TRIALS, ids=name_of)
def test_trials_carry_their_provenance(path: Path) -> None:
    for recording in recorded(path):
        suite = path.with_name(f"suite-{recording.problem.compute}.json")
        commit = json.loads(suite.read_text(encoding="utf-8"))["commit"]
        origin = recording.origin
        check(recording.device.name, origin.driver, origin.compiler, commit, recording.date)


def test_drawn_shapes_say_what_measured_them() -> None:
    for recording in (recording for path in DRAWN for recording in recorded(path)):
        assert recording.device.name
        assert recording.origin.driver
        assert recording.origin.compiler
        assert datetime.fromisoformat(recording.date).tzinfo is not None


def test_results_are_data_and_notes_only() -> None:
    files = [path for path in RESULTS.rglob("*") if path.is_file()]
    assert [name_of(path) for path in files if path.suffix not in ALLOWED] == []
    assert len(files) <= MOST_FILES


@pytest.mark.parametrize("path", [*FILES, *RESULTS.rglob("*.md")], ids=name_of)
def test_results_name_no_path_of_a_machine(path: Path) -> None:
    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|usr|Users)/", path.read_text("utf-8"))


def test_recordings_are_kept_once() -> None:
    shipped = ROOT / "autotune" / "data" / "recordings"
    packed = [path.read_bytes() for path in shipped.rglob("*.gz")]
    for path in (*TRIALS, *DRAWN):
        with ZipFile(path) as archive:
            packed += map(archive.read, archive.namelist())
    contents = [*map(gzip.decompress, packed)]
    assert len(set(contents)) == len(contents)
