"""`--objective energy`: where there are energies, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import answer, printed, run
from support.fake_runner import tiled
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import SQUARE, entry, record

from autotune import device, settings
from autotune.measure.measurement import Energy
from autotune.records import Store

BEST = ("best", str(SQUARE), "--device", "h100")


def save(*joules: float | None) -> None:
    """Records kernels of which each is slower than the one before."""
    entries = []
    for place, amount in enumerate(joules):
        made = replace(entry(8, 900.0 + 50 * place), config=tiled(16 + place))
        energy = None if amount is None else Energy(amount, 0.0, 500.0, 1_700.0)
        entries.append(replace(made, measurement=replace(made.measurement, energy=energy)))
    Store(settings.cache_dir()).save(record(*entries, device=device.find("h100")))


@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_best_by_energy(exact: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    save(2.0, 1.5)
    data = answer(capsys, *BEST, *exact, "--objective", "energy")
    assert (data["config"], data["joules"], data["objective"]) == (str(tiled(17)), 1.5, "energy")
    assert data["time_us"] == 950.0
    assert answer(capsys, *BEST, *exact)["config"] == str(tiled(16))
    text = printed(capsys, *BEST, *exact, "--objective", "energy")
    assert "\nenergy     1.5 J a run, 500 W at 1700 MHz" in text


def test_best_without_energies_warns_and_goes_by_time(capsys: pytest.CaptureFixture[str]) -> None:
    save(None, None)
    assert run(*BEST, "--objective", "energy") == 0
    shown = capsys.readouterr()
    assert "warning: no energies are recorded, so the time decides; `autotune tune" in shown.err
    assert "--device h100 --objective energy` measures them" in shown.err
    assert "time       900.0 us" in shown.out


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("h100", "energies are not predicted; give a GPU of this machine"),
        (DEVICE, "the recording of 30 configurations has no energies; give a GPU"),
    ],
)
def test_tuning_without_a_counter_says_so(
    where: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", str(PROBLEM), "--device", where, "--objective", "energy") == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("tune", "64x64x64", "32x32x32"),
        ("tune", "1..64x64x64"),
        ("tune", "1..64x64x64:bf16", "--batch-invariant"),
    ],
)
def test_several_shapes_go_by_times(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments, "--device", "h100", "--objective", "energy") == 2
    error = capsys.readouterr().err
    assert "minimises hot or cold times; tune for energy one shape at a time" in error


def test_check_compares_times(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bundle = tmp_path / "bundle.json"
    assert run("check", "--against", str(bundle), "--objective", "energy") == 2
    assert "unknown objective 'energy'; give one of hot, cold" in capsys.readouterr().err
