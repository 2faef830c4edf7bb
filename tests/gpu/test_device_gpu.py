"""The probed GPU, compared with nvidia-smi and the catalogue."""

from __future__ import annotations

import subprocess
from dataclasses import replace

import pytest

from autotune.device import Device, find
from autotune.errors import DeviceError, MissingError
from autotune.gpu import probe
from autotune.gpu.session import pycuda

INDEX = 0


@pytest.fixture(scope="module")
def device() -> Device:
    try:
        return probe(INDEX)
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def smi() -> list[str]:
    """Name, memory in MiB, highest SM and memory clock in MHz, as nvidia-smi gives them."""
    try:
        # nvidia-smi ignores CUDA_VISIBLE_DEVICES and may number GPUs in another order.
        address = pycuda().Device(INDEX).pci_bus_id()
    except MissingError as error:
        pytest.skip(str(error))
    fields = "name,memory.total,clocks.max.sm,clocks.max.memory"
    command = ["nvidia-smi", "-i", address, f"--query-gpu={fields}"]
    try:
        answer = subprocess.run(
            [*command, "--format=csv,noheader,nounits"], capture_output=True, text=True, check=True
        )
    except FileNotFoundError:
        pytest.skip("no nvidia-smi")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nvidia-smi does not answer: {error.stdout.strip()}")
    return [field.strip() for field in answer.stdout.split(",")]


def test_name_is_that_of_nvidia_smi(device: Device, smi: list[str]) -> None:
    assert device.name == smi[0]


def test_clocks_are_those_of_nvidia_smi(device: Device, smi: list[str]) -> None:
    assert (device.sm_clock, device.memory_clock) == (int(smi[2]) * 10**6, int(smi[3]) * 10**6)


def test_memory_is_nvidia_smis_less_the_drivers_share(device: Device, smi: list[str]) -> None:
    assert 0.97 < device.memory_bytes / (int(smi[1]) * 2**20) <= 1


def test_limits_are_those_of_the_catalogue(device: Device) -> None:
    try:
        catalogued = find(device.name)
    except DeviceError:
        pytest.skip(f"{device.name} is not in the catalogue")
    rates = {"memory_bandwidth": 0.0, "memory_bytes": 0, "memory_clock": 0}
    assert replace(device, **rates) == replace(catalogued, **rates)  # type: ignore[arg-type]


def test_bandwidth_is_that_of_the_catalogue(device: Device) -> None:
    try:
        catalogued = find(device.name)
    except DeviceError:
        pytest.skip(f"{device.name} is not in the catalogue")
    assert device.memory_bandwidth == pytest.approx(catalogued.memory_bandwidth, rel=0.01)


def test_survives_json(device: Device) -> None:
    assert Device.from_json(device.to_json()) == device


def test_absent_gpu_is_named(device: Device) -> None:
    del device
    with pytest.raises(DeviceError, match="no GPU 99; the driver shows"):
        probe(99)
