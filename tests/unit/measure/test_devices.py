"""The meaning of `device=` and `--device`, and the GPUs that the driver shows."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_driver import MEMORY
from support.fake_gpu import FakeGpu, install

from autotune.cuda import bindings
from autotune.device import Device, find
from autotune.errors import DeviceError, MissingError
from autotune.measure import devices, targets
from autotune.measure.devices import (
    LocalGpu,
    ReplayedFile,
    ReplayedGpu,
    count,
    gpu_numbers,
    probe,
    source_of,
    spelled,
)

H100 = find("h100")


@dataclass
class device:
    """A device of PyTorch."""

    type: str
    index: int | None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


@pytest.mark.parametrize(
    ("device", "source"),
    [
        ("gpu", LocalGpu(0)),
        ("GPU:2", LocalGpu(2)),
        (2, LocalGpu(2)),
        (np.int64(2), LocalGpu(2)),
        ("cuda", LocalGpu(0)),
        ("CUDA:1", LocalGpu(1)),
        (device("cuda", None), LocalGpu(0)),
        (device("cuda", 3), LocalGpu(3)),
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


@pytest.mark.parametrize("device", [-1, True, 1.5, None, "gpu:-1", ["h100"], np.array([1])])
def test_invalid_device_is_refused(device: Any) -> None:
    with pytest.raises(DeviceError):
        source_of(device)


@pytest.mark.parametrize(
    ("device", "text"),
    [
        ("replay:h100", "replay:h100"),
        (1, "gpu:1"),
        ("cuda:1", "cuda:1"),
        (device("cuda", 1), "gpu:1"),
        (device("cuda", None), "gpu:0"),
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
            raise DeviceError(f"no GPU {index}")
        return (find("t4"), H100)[index]

    monkeypatch.setattr(devices, "probe", probe)


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


def test_device_of_pytorch_that_is_no_gpu_is_refused() -> None:
    with pytest.raises(DeviceError, match="device is cpu; give a GPU, such as cuda:0"):
        source_of(device("cpu", None))


@pytest.mark.parametrize(
    "devices",
    ["0,2", " 0 , 2 ", "cuda:0,cuda:2", "gpu,gpu:2", [0, 2], ("cuda:0", 2), [device("cuda", 0), 2]],
)
def test_several_gpus_are_numbers_or_words(devices: Any) -> None:
    assert gpu_numbers(devices) == [0, 2]


@pytest.mark.parametrize("devices", ["", "h100", "0,h100", [], [1.5], "0,-1", [device("cpu", 0)]])
def test_what_is_no_gpu_gives_no_numbers(devices: Any) -> None:
    assert gpu_numbers(devices) is None


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    return install(FakeGpu(), monkeypatch)


@pytest.mark.usefixtures("gpu")
def test_probe_converts_units() -> None:
    device, catalogued = probe(), find("h100")
    assert device.memory_bandwidth == 2 * 2_619_000_000 * 5120 / 8
    fields = device.to_json() | {
        "memory_bandwidth": catalogued.memory_bandwidth,
        "memory_bytes": catalogued.memory_bytes,
        "clusters": list(catalogued.clusters or ()),  # the driver is asked in a context alone
    }
    assert (fields, device.memory_bytes) == (catalogued.to_json(), MEMORY)


@pytest.mark.parametrize("index", [-1, 1])
def test_absent_gpu_is_named(gpu: FakeGpu, index: int) -> None:
    with pytest.raises(DeviceError, match=f"no GPU {index}; the driver shows 1, numbered from 0"):
        probe(index)
    gpu.devices = 2
    assert (count(), probe(1).slug) == (2, find("h100").slug)


def test_missing_bindings_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings", None)
    with pytest.raises(
        MissingError, match=r"cuda.bindings cannot .*; run `pip install 'tile-autotune"
    ):
        probe()


def initialising(monkeypatch: pytest.MonkeyPatch, result: Any) -> None:
    """Makes `cuInit` of the driver give a result, or raise it."""
    from cuda.bindings import driver

    def initialise(_: int) -> Any:
        if isinstance(result, Exception):
            raise result
        return (result,)

    monkeypatch.setattr(driver, "cuInit", initialise)


def test_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    initialising(monkeypatch, RuntimeError("libcuda.so.1"))
    with pytest.raises(MissingError, match=r"no CUDA driver: libcuda.so.1 was not found"):
        bindings.initialised()


def test_missing_gpu_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    from cuda.bindings import driver

    initialising(monkeypatch, driver.CUresult.CUDA_ERROR_NO_DEVICE)
    with pytest.raises(MissingError, match="no usable GPU: cuInit gave CUDA_ERROR_NO_DEVICE"):
        bindings.initialised()
