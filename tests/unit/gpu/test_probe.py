"""Probing a GPU through PyCUDA, and the errors where something is missing."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from autotune.device import find
from autotune.errors import DeviceError, MissingError
from autotune.gpu import probe

# Attributes that PyCUDA reads on an H100 SXM; clocks in kHz and the bus width in bits.
ATTRIBUTES = {
    "compute_capability_major": 9,
    "compute_capability_minor": 0,
    "multiprocessor_count": 132,
    "warp_size": 32,
    "max_registers_per_block": 65536,
    "max_registers_per_multiprocessor": 65536,
    "max_shared_memory_per_block": 49152,
    "max_shared_memory_per_block_optin": 232448,
    "max_shared_memory_per_multiprocessor": 233472,
    "reserved_shared_memory_per_block": 1024,
    "max_threads_per_block": 1024,
    "max_threads_per_multiprocessor": 2048,
    "max_blocks_per_multiprocessor": 32,
    "l2_cache_size": 52428800,
    "clock_rate": 1980000,
    "memory_clock_rate": 2619000,
    "global_memory_bus_width": 5120,
}


class Handle(SimpleNamespace):
    def __init__(self, index: int) -> None:
        super().__init__(index=index, **ATTRIBUTES)

    @staticmethod
    def count() -> int:
        return 1

    def name(self) -> str:
        return "NVIDIA H100 80GB HBM3"

    def total_memory(self) -> int:
        return 85899345920


class Refused(Exception):
    """The `Error` of the fake PyCUDA."""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    driver = ModuleType("pycuda.driver")
    vars(driver).update(Device=Handle, Error=Refused, init=lambda: None)
    package = ModuleType("pycuda")
    vars(package).update(driver=driver)
    monkeypatch.setitem(sys.modules, "pycuda", package)
    monkeypatch.setitem(sys.modules, "pycuda.driver", driver)
    return driver


@pytest.mark.usefixtures("driver")
def test_probe_converts_units() -> None:
    device, catalogued = probe(), find("h100")
    assert device.memory_bandwidth == 2 * 2_619_000_000 * 5120 / 8
    fields = device.to_json() | {"memory_bandwidth": catalogued.memory_bandwidth}
    assert fields == catalogued.to_json()


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("index", [-1, 1])
def test_absent_gpu_is_named(index: int) -> None:
    with pytest.raises(DeviceError, match=f"no GPU {index}; the driver shows 1, numbered from 0"):
        probe(index)


def test_missing_pycuda_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.delitem(sys.modules, "pycuda.driver", raising=False)
    with pytest.raises(
        MissingError, match=r'no PyCUDA .* run `pip install "tile-autotune\[gpu\]"`'
    ):
        probe()


def test_missing_driver_is_named(driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise Refused("cuInit failed: no CUDA-capable device is detected")

    monkeypatch.setattr(driver, "init", refused)
    with pytest.raises(MissingError, match="no usable GPU: cuInit failed: no CUDA-capable device"):
        probe()


def test_missing_gpu_is_named(driver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    del driver
    monkeypatch.setattr(Handle, "count", staticmethod(lambda: 0))
    with pytest.raises(MissingError, match="no GPU: the NVIDIA driver shows none"):
        probe()
