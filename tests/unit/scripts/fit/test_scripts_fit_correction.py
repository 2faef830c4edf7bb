"""Training the networks that correct the cost model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import correction
import left_out
import numpy as np
import pytest
import typer
from support.paths import ROOT

from autotune.device import find
from autotune.measure.recording import Recording
from autotune.model import cost

with ZipFile(ROOT / "docs/results/h200/drawn.zip") as archive:
    DRAWN = {name: archive.read(name) for name in archive.namelist()[::16]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of recordings to train one network a family and two folds on."""
    monkeypatch.setattr(correction, "MEMBERS", 1)
    monkeypatch.setattr(correction, "FOLDS", 2)
    made = tmp_path / "drawn"
    made.mkdir()
    for name, content in DRAWN.items():
        (made / name).write_bytes(content)
    return made


def test_networks_learn_the_error_of_recordings(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "correction.npz"
    correction.main([folder], out)
    assert "corrected" in capsys.readouterr().out
    with np.load(out, allow_pickle=False) as arrays:
        capability, networks = cost.loads(arrays)
        about = json.loads(str(arrays["about"]))
    assert capability == (9, 0)
    assert about["recordings"] == len(DRAWN)
    assert {"mma", "wgmma"} <= networks.keys()
    recordings = map(Recording.loads, DRAWN.values())
    samples = [
        sample
        for place, recording in enumerate(recordings)
        for sample in correction.samples_of(place, recording)
    ]
    before = [sample.errors for sample in samples]
    after = [sample.errors - correction.logs(networks, sample) for sample in samples]
    assert np.concatenate(after).std() < 0.8 * np.concatenate(before).std()


def test_left_out_shapes_have_not_been_seen(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recordings = [Recording.load(path) for path in sorted(folder.glob("*.json.gz"))]
    taught: list[set[str]] = []

    def trained(samples: Sequence[correction.Sample]) -> dict[str, cost.Network]:
        taught.append({str(recordings[sample.place].problem) for sample in samples})
        return {}

    monkeypatch.setattr(left_out, "trained", trained)
    parts = [
        [str(item.problem) for item in part]
        for part in left_out.by_correction(recordings, [folder])
    ]
    assert len(parts) == 2
    assert sum(map(len, parts)) == len(recordings)
    for part, seen in zip(parts, taught, strict=True):
        assert seen == {str(item.problem) for item in recordings} - {*part}


def test_two_architectures_are_refused(folder: Path) -> None:
    other = Recording.loads(next(iter(DRAWN.values())))
    replace(other, device=find("a100")).save(folder / "other.json.gz")
    with pytest.raises(typer.BadParameter, match="2 compute capabilities"):
        correction.main([folder])


def test_few_configurations_teach_nothing() -> None:
    samples = correction.samples_of(0, Recording.loads(next(iter(DRAWN.values()))))
    assert correction.trained(samples) == {}
    assert correction.logs({}, samples[0]).tolist() == [0.0] * len(samples[0].configs)
