"""Devices described by the attributes of the driver."""

from __future__ import annotations

import pytest
from support.fake_driver import H100, MEMORY

from autotune.cuda.bindings import NAMES, describe


def test_driver_has_every_attribute() -> None:
    driver = pytest.importorskip("cuda.bindings.driver")
    assert [
        n for n in NAMES if not hasattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{n}")
    ] == []


def test_bandwidth_counts_both_edges_of_the_memory_clock() -> None:
    # NVIDIA's H100 SXM data sheet: 3.35 TB/s.
    bandwidth = describe("H100", MEMORY, H100).memory_bandwidth
    assert bandwidth == pytest.approx(3.35e12, rel=0.002)


def test_peak_counts_a_fused_multiply_add_twice() -> None:
    # NVIDIA's H100 SXM data sheet: 67 TFLOP/s in fp32.
    assert describe("H100", MEMORY, H100).peak_fp32 == pytest.approx(67e12, rel=0.002)


def test_limits_are_those_of_the_driver() -> None:
    device = describe("H100", MEMORY, H100)
    limits = device.shared_per_block_optin, device.reserved_shared_per_block, device.blocks_per_sm
    assert limits == (232448, 1024, 32)
