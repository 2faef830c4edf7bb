"""The command line and the public functions on a real GPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import cli, runtime
from autotune.errors import MissingError
from autotune.measure import devices
from autotune.tuning import options

SHAPE = "512x384x640"


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    try:
        devices.probe()
    except MissingError as error:
        pytest.skip(str(error))


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    """The JSON output of a command line."""
    with pytest.raises(SystemExit) as caught:
        cli.main([*arguments, "--json"])
    assert caught.value.code == 0
    data: dict[str, object] = json.loads(capsys.readouterr().out)
    return data


def test_device_prints_the_drivers_identity(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "device") == devices.probe(enter=True).to_json()


def test_tuning_and_running_agree_on_the_device() -> None:
    assert devices.probe() == runtime.probe()


# Where cuBLAS splits K, few tf32x3 kernels are as accurate as twice its error: 20 may hold none.
@pytest.mark.parametrize(
    ("precision", "trials"),
    [("", 20), (":tf32", 20), (":tf32x3", 120), (":f16", 20), (":bf16:out=f32", 20)],
)
def test_best_finds_what_tune_measured(
    capsys: pytest.CaptureFixture[str], precision: str, trials: int
) -> None:
    tuned = answer(capsys, "tune", SHAPE + precision, "--trials", f"{trials}", "--budget", "40s")
    assert tuned["evidence"] == "measured"
    assert answer(capsys, "best", SHAPE + precision) == tuned


def test_tune_compares_with_cublas_through_pytorch(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    tuned = answer(capsys, "tune", SHAPE, "--trials", "5", "--budget", "40s")
    assert isinstance(tuned["ratio"], float)


def test_every_rung_of_the_ladder_runs(capsys: pytest.CaptureFixture[str]) -> None:
    climbed = answer(capsys, "ladder", "512", "--no-tune")
    rungs = climbed["rungs"]
    assert isinstance(rungs, list)
    numbered = [rung for rung in rungs if rung["name"][0].isdigit()]
    assert len(numbered) >= 9
    assert [rung["failure"] for rung in numbered] == [None] * len(numbered)


def test_missing_gpu_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.main(["device", "--device", "gpu:99"])
    assert caught.value.code == 2
    assert "no GPU 99" in capsys.readouterr().err


def test_matmul_tunes_an_untuned_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(options, "BUDGET_S", 5.0)
    a, b = torch.randn(2, 64, 64, device="cuda").unbind()
    result: Any = autotune.matmul(a, b, policy=autotune.Policy(tune=True))
    assert torch.allclose(result.double(), a.double() @ b.double(), atol=1e-4)
    assert autotune.best(64, 64, 64).evidence == "measured"
