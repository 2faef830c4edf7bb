"""Probing a GPU through the driver, and the errors where something is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.fake_driver import MEMORY
from support.fake_gpu import FakeGpu, install

from autotune.cuda import bindings
from autotune.device import find
from autotune.errors import DeviceError, MissingError
from autotune.gpu import count, probe


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
    with pytest.raises(MissingError, match=r"cuda.bindings cannot .*; install tile-autotune"):
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
