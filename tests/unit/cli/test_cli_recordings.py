"""`--device replay:PATH`: the user's own recordings, and what is no recording of the problem."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, run
from support.fake_runner import ORIGIN, FakeRunner
from support.sample_recording import FASTEST, PROBLEM, VENDOR_US, recorded
from support.sample_records import H100, SQUARE

import autotune
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.measure import devices, gpu_runner
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import KernelRecording, Recording
from autotune.problem import Problem
from autotune.problem.call import KernelCall


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder with the sample recording under two names."""
    mine = tmp_path / "Mine"
    for name in ("own", PROBLEM.slug):
        recorded().save(mine / f"{name}.json.gz")
    monkeypatch.chdir(tmp_path)
    return mine


SAMPLER = ("--sampler", "exhaustive")


@pytest.mark.parametrize("path", ["Mine/own.json.gz", "./Mine", "REPLAY"])
def test_own_recording_is_tuned_on(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    device = "REPLAY:Mine/own.json.gz" if path == "REPLAY" else f"replay:{path}"
    data = answer(capsys, "tune", str(PROBLEM), "--device", device, *SAMPLER)
    assert (data["config"], data["evidence"]) == (str(FASTEST), "replayed")
    assert data["cublas_us"] == VENDOR_US
    assert answer(capsys, "best", str(PROBLEM), "--device", device)["config"] == str(FASTEST)


@pytest.mark.parametrize(
    ("shape", "path", "status", "message"),
    [
        (SQUARE, "Mine/own.json.gz", 3, "is a recording of 256x256x256:f32:nn, not of 4096x4096"),
        (PROBLEM, "Mine/none.json.gz", 3, "none.json.gz: no such recording"),
        (SQUARE, "./Mine", 3, "has no recording 4096x4096x4096-f32-nn.json.gz; it has 256x256"),
        (PROBLEM, "./empty", 3, "has no recording 256x256x256-f32-nn.json.gz; it has none"),
        (PROBLEM, "broken.json.gz", 1, "broken.json.gz: not a recording that can be used: it is"),
        (PROBLEM, "saxpy.json.gz", 1, "it is of a user kernel; give it to `tune_kernel`"),
    ],
    ids=["another shape", "no file", "no shape", "empty folder", "broken", "user kernel"],
)
def test_unusable_recording_is_named(
    shape: Problem,
    path: str,
    status: int,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json.gz").write_bytes(b"no gzip")
    row = recorded().rows[0]
    call = KernelCall("saxpy", ("float32[8]",))
    KernelRecording(call, H100, ORIGIN, "2026-11-21T12:00:00Z", (row,)).save(
        tmp_path / "saxpy.json.gz"
    )
    assert run("tune", str(shape), "--device", f"replay:{path}") == status
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_device_of_a_recording_is_that_of_any_kind(tmp_path: Path) -> None:
    row = recorded().rows[0]
    path = tmp_path / "saxpy.json.gz"
    KernelRecording(KernelCall("saxpy", ()), H100, ORIGIN, "2026-11-21T12:00:00Z", (row,)).save(
        path
    )
    for device in (f"replay:{path}", f"replay:{tmp_path}/Mine"):
        assert autotune.choose(str(PROBLEM), device=device).device == H100


@pytest.mark.parametrize("kind", ["gemm", "kernel"])
def test_only_recordings_are_replaced(tmp_path: Path, kind: str) -> None:
    row = recorded().rows[0]
    kernel = KernelRecording(KernelCall("saxpy", ()), H100, ORIGIN, "2026-11-21T12:00:00Z", (row,))
    path, recording = tmp_path / "mine.json.gz", recorded() if kind == "gemm" else kernel
    for _ in range(2):
        recording.save(path)
    thesis = gzip.compress(b'{"thesis": []}')
    path.write_bytes(thesis)
    with pytest.raises(AutotuneError, match="exists and is not a recording of autotune"):
        recording.save(path)
    assert path.read_bytes() == thesis


def test_gemm_is_no_recording_of_a_kernel(folder: Path) -> None:
    with pytest.raises(autotune.errors.AutotuneError, match="it is of a GEMM; give it to `tune`"):
        KernelRecording.load(folder / "own.json.gz")


# Written by tune


class OpenedRunner(FakeRunner):
    driver = "13.0"


@pytest.fixture
def measuring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU on which each configuration has the time that the sample has for it."""
    outcomes = {row.config: row.outcome for row in recorded().rows}

    def outcome(config: Config) -> Measurement | Failure:
        return outcomes.get(config, Failure("launch", "not in the sample"))

    def open_runner(*_: object, **__: object) -> OpenedRunner:
        return OpenedRunner(outcome, recorded=[*outcomes])

    monkeypatch.setattr(gpu_runner, "open_runner", open_runner)
    monkeypatch.setattr(devices, "probe", lambda _=0: H100)


@pytest.mark.usefixtures("measuring")
def test_search_is_recorded_and_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "new" / "mine.json.gz"
    answer(capsys, "tune", str(PROBLEM), *SAMPLER, "--recording", str(written))
    mine, sample = Recording.load(written), recorded()
    assert (mine.problem, mine.device) == (PROBLEM, H100)
    searched = {row.config: row for row in sample.rows if row.config.family == "simt"}
    assert {row.config: row.outcome for row in mine.rows} == {
        config: row.outcome for config, row in searched.items()
    }
    assert mine.baseline == Measurement(90.0)
    device = f"replay:{written}"
    data = answer(capsys, "tune", str(PROBLEM), "--device", device, *SAMPLER)
    assert (data["config"], data["evidence"]) == (str(FASTEST), "replayed")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((str(PROBLEM), "--device", "h100"), "h100 has no times to record; give a GPU"),
        ((str(PROBLEM), "--device", "replay:Mine/own.json.gz"), "has no times to record"),
        ((str(PROBLEM), "--effort", "quick"), "quick takes no recording; leave either out"),
        (("64x64x64", "32x32x32"), "several problems take no recording; leave it out"),
        (("1..64x64x64",), "a range takes no recording; leave it out"),
    ],
)
def test_only_a_search_on_a_gpu_is_recorded(
    arguments: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", *arguments, "--recording", "mine.json.gz") == 2
    assert message in capsys.readouterr().err
    assert not Path("mine.json.gz").exists()


def test_shipped_recording_of_a_kernel_needs_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = answer(capsys, "tune", "--device", "replay:stencil", "--effort", "exhaustive")
    assert (data["kernel"]["name"], data["evidence"]) == ("stencil", "replayed")
    assert (data["provenance"]["trials"], data["entries"][0]["params"]["BX"]) == (228, 32)
    assert run("export", "stencil", "--out", "lib") == 3
    assert "has no source" in capsys.readouterr().err


def test_trials_of_a_kernel_are_exported_as_t4(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(capsys, "tune", "--device", "replay:stencil", "--trials", "12")
    for name in ("H200_T4.json", "H200_T4.json.gz", "H200_T4.json"):  # its own file is replaced
        path = tmp_path / name
        assert run("cache", "export", str(path), "stencil", "--t4") == 0
        assert capsys.readouterr().out.startswith(f"{path}: 12 trials of stencil(float32[4096")
        assert len(KernelRecording.load(path).rows) == 12
    data: Any = answer(capsys, "tune", "--device", f"replay:{path}", "--effort", "exhaustive")
    assert data["provenance"]["trials"] == 12


def test_t4_is_of_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("cache", "export", str(tmp_path / "x.json"), "stencil", "--t4") == 3
    assert "no kernel 'stencil' is recorded" in capsys.readouterr().err
    answer(capsys, "tune", "--device", "replay:./Mine", str(PROBLEM), "--trials", "3")
    answer(capsys, "tune", "--device", "replay:stencil", "--trials", "3")
    assert run("cache", "export", str(tmp_path / "x.json"), "--t4") == 2
    assert "--t4 writes the trials of one record, 2 match; give" in capsys.readouterr().err
    assert run("tune", "--device", "replay:h100") == 2
    assert "replay:h100 is not the recording of a user kernel" in capsys.readouterr().err
