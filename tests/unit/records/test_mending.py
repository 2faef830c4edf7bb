"""`autotune cache prune` mends what `autotune cache verify` names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, own_machine, run
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100, SQUARE, record

import autotune
from autotune.records import Store
from autotune.records.inventory import scan


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return own_machine(monkeypatch, tmp_path)


def broken(cache: Path, name: str, content: bytes) -> Path:
    path = cache / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def asides(path: Path) -> list[str]:
    return sorted(beside.name for beside in path.parent.glob(f"{path.name}.broken-*"))


BROKEN = {
    "record": ("records/h100/64x64x64-f32-nn.json", b"{"),
    "range": ("ranges/h100/1..64x64x64-f32-nn.json", b"{"),
    "user kernel": ("kernels/h100/saxpy-0123456789abcdef.json", b"{"),
    "quarantine": ("quarantine/h100.jsonl", b'{"a": 1}\nnothing\n'),
}


@pytest.mark.parametrize(("name", "content"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_mended_or_set_aside(cache: Path, name: str, content: bytes) -> None:
    path = broken(cache, name, content)
    assert run("cache", "verify") == 1
    assert run("cache", "prune", "mend") == 0
    assert asides(path) == [f"{path.name}.broken-1"]
    assert run("cache", "verify") == 0
    assert run("cache", "prune") == 0
    assert asides(path) == []


def test_broken_program_is_deleted(cache: Path) -> None:
    path = broken(cache, "programs/abc.program", b"{}")
    assert run("cache", "prune", "mend") == 0
    assert [*path.parent.iterdir()] == []


def test_quarantine_keeps_its_whole_lines(cache: Path) -> None:
    store = Store(cache)
    store.quarantine(H100, "a", "it hung")
    (path,) = (cache / "quarantine").glob("*.jsonl")
    path.write_bytes(b"nothing\n" + path.read_bytes())
    assert run("cache", "prune", "mend") == 0
    assert store.quarantined(H100) == {"a": "it hung"}
    assert run("cache", "verify") == 0


def test_broken_line_of_a_trial_log_is_no_fault(cache: Path) -> None:
    tuned = autotune.tune(PROBLEM, device=DEVICE, trials=6, progress=False)
    (path,) = (cache / "studies").rglob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((*lines[:-1], b"#" * 40 + b"\n", lines[-1])))
    before = path.read_bytes()
    assert run("cache", "verify") == 0
    assert run("cache", "prune", "mend") == 0
    assert path.read_bytes() == before
    again = autotune.tune(PROBLEM, device=DEVICE, trials=6, progress=False)
    assert again.provenance.trials >= tuned.provenance.trials


def test_trial_log_that_cannot_be_read_is_set_aside(cache: Path) -> None:
    path = cache / "studies" / "h100" / "a.measured.0123456789ab.jsonl"
    path.mkdir(parents=True)
    assert run("cache", "verify") == 1
    assert run("cache", "prune", "mend") == 0
    assert asides(path) == [f"{path.name}.broken-1"]


def test_dry_run_mends_nothing(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = broken(cache, "programs/abc.program", b"{}")
    data: Any = answer(capsys, "cache", "prune", "mend", "--dry-run")
    assert data["mended"] == {str(path): "to mend"}
    assert path.exists()


def test_mending_is_told_in_a_line_each(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = broken(cache, "quarantine/h100.jsonl", b"nothing\n")
    assert run("cache", "prune", "mend") == 0
    assert capsys.readouterr().out.splitlines() == [
        f"{path}: broken lines left out; the damaged one is kept beside it",
        "0 files, 0 bytes deleted",
    ]


def test_whole_files_stay_as_they_are(cache: Path) -> None:
    store = Store(cache)
    store.save(record())
    store.quarantine(H100, "a", json.dumps("it hung"))
    before = {item.path: item.path.read_bytes() for item in scan(cache, thorough=True)}
    assert run("cache", "prune", "mend") == 0
    assert {path: path.read_bytes() for path in before} == before
    assert store.load(H100, SQUARE) is not None
