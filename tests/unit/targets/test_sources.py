"""The meaning of `device=` and `--device`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from autotune import runtime
from autotune.device import Device, find
from autotune.errors import DeviceError, RunnerError
from autotune.targets import targets
from autotune.targets.sources import LocalGpu, ReplayedFile, ReplayedGpu, source_of, spelled

H100 = find("h100")


@pytest.mark.parametrize(
    ("device", "source"),
    [
        ("gpu", LocalGpu(0)),
        ("GPU:2", LocalGpu(2)),
        (2, LocalGpu(2)),
        ("replay:h100", ReplayedGpu("h100")),
        ("REPLAY:H100", ReplayedGpu("h100")),
        ("Replay:Mine.json.gz", ReplayedFile(Path("Mine.json.gz"))),
        ("replay:a/b", ReplayedFile(Path("a/b"))),
        ("replay:~/x.json.gz", ReplayedFile(Path.home() / "x.json.gz")),
        ("h100", H100),
        (H100, H100),
    ],
)
def test_device_names_a_source(device: Any, source: object) -> None:
    assert source_of(device) == source


def test_device_file_is_text_or_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "card").write_text(json.dumps(H100.to_json()))
    monkeypatch.chdir(tmp_path)
    assert source_of(str(tmp_path / "card")) == source_of(Path("card")) == H100


@pytest.mark.parametrize("device", [-1, True, 1.5, None, "gpu:-1", ["h100"]])
def test_invalid_device_is_refused(device: Any) -> None:
    with pytest.raises(DeviceError):
        source_of(device)


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("replay:h100", "replay:h100"),
        (1, "gpu:1"),
        (Path("a/card.json"), "a/card.json"),
        (H100, "'NVIDIA H100 80GB HBM3'"),
    ],
)
def test_device_is_spelled_for_the_shell(device: Any, text: str) -> None:
    assert spelled(device) == text


@pytest.fixture
def _two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    def probe(index: int) -> Device:
        if index > 1:
            raise RunnerError(f"no GPU {index}")
        return (find("t4"), H100)[index]

    monkeypatch.setattr(runtime, "probe", probe)


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(("device", "ordinal"), [("gpu", 0), (7, 7), ("h100", 1), (H100, 1)])
def test_kernels_run_on_the_gpu_of_a_device(device: Any, ordinal: int) -> None:
    assert targets.ordinal_of(device) == ordinal


@pytest.mark.usefixtures("_two_gpus")
@pytest.mark.parametrize(
    ("device", "message"),
    [("a100", "A100.* is not in this machine"), ("replay:h100", "is a recording, not a GPU")],
)
def test_kernels_need_a_gpu_of_this_machine(device: str, message: str) -> None:
    with pytest.raises(DeviceError, match=message):
        targets.ordinal_of(device)
