"""The attributes of a GPU that the driver reports, and the `Device` they describe."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.device import Device, fp32_lanes

# `CU_DEVICE_ATTRIBUTE_<name>` of the driver.
NAMES: tuple[str, ...] = (
    "COMPUTE_CAPABILITY_MAJOR",
    "COMPUTE_CAPABILITY_MINOR",
    "MULTIPROCESSOR_COUNT",
    "WARP_SIZE",
    "MAX_REGISTERS_PER_BLOCK",
    "MAX_REGISTERS_PER_MULTIPROCESSOR",
    "MAX_SHARED_MEMORY_PER_BLOCK",
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN",
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR",
    "RESERVED_SHARED_MEMORY_PER_BLOCK",
    "MAX_THREADS_PER_BLOCK",
    "MAX_THREADS_PER_MULTIPROCESSOR",
    "MAX_BLOCKS_PER_MULTIPROCESSOR",
    "L2_CACHE_SIZE",
    "CLOCK_RATE",
    "MEMORY_CLOCK_RATE",
    "GLOBAL_MEMORY_BUS_WIDTH",
)


def describe(name: str, memory_bytes: int, values: Mapping[str, int]) -> Device:
    """The device with these values of the attributes in `NAMES`, in the driver's units.

    Clocks are in kHz, the bus width in bits. Memory transfers on both clock edges, so the peak
    bandwidth is 2 x memory clock x bus width / 8 (bytes/s). The fp32 peak is
    SMs x lanes x 2 x SM clock (FLOP/s).
    """
    capability = values["COMPUTE_CAPABILITY_MAJOR"], values["COMPUTE_CAPABILITY_MINOR"]
    sm_clock, memory_clock = 1000 * values["CLOCK_RATE"], 1000 * values["MEMORY_CLOCK_RATE"]
    sms = values["MULTIPROCESSOR_COUNT"]
    return Device(
        name=name,
        compute_capability=capability,
        sms=sms,
        warp_size=values["WARP_SIZE"],
        registers_per_block=values["MAX_REGISTERS_PER_BLOCK"],
        registers_per_sm=values["MAX_REGISTERS_PER_MULTIPROCESSOR"],
        shared_per_block=values["MAX_SHARED_MEMORY_PER_BLOCK"],
        shared_per_block_optin=values["MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"],
        shared_per_sm=values["MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"],
        reserved_shared_per_block=values["RESERVED_SHARED_MEMORY_PER_BLOCK"],
        threads_per_block=values["MAX_THREADS_PER_BLOCK"],
        threads_per_sm=values["MAX_THREADS_PER_MULTIPROCESSOR"],
        blocks_per_sm=values["MAX_BLOCKS_PER_MULTIPROCESSOR"],
        l2_bytes=values["L2_CACHE_SIZE"],
        memory_bytes=memory_bytes,
        sm_clock=sm_clock,
        memory_clock=memory_clock,
        memory_bandwidth=2 * memory_clock * values["GLOBAL_MEMORY_BUS_WIDTH"] / 8,
        peak_fp32=float(sms * fp32_lanes(capability) * 2 * sm_clock),
    )
