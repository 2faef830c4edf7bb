"""Blocks that each of an SM's limits allows.

The arithmetic is that of NVIDIA's `cuda_occupancy.h` (CUDA 13). A device with a `granularity` is a
textbook device with plain division, where registers are allocated to whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.device import SmLimits
from autotune.errors import DeviceError
from autotune.problem.integers import ceil_div, round_up


@dataclass(frozen=True)
class Architecture:
    """Properties of an SM that are not device attributes.

    Attributes:
        carve_outs: possible sizes of the SM's shared memory in KiB, ascending; empty where it is
            separate from the L1 cache.
        barriers_per_slot: named barriers for each of the SM's block slots; None where they never
            limit resident blocks.
        shared_unit: allocation unit of shared memory for a block, in bytes.
        register_unit: allocation unit of registers for a warp.
        registers_per_thread: largest number of registers of a thread.
        partitions: parts of the SM, each with its own register file.
        checked_partitions: parts that the check of a launch assumes; on compute capability 6.0 it
            assumes those of 6.1, so that one kernel runs on both.
    """

    carve_outs: tuple[int, ...] = ()
    barriers_per_slot: int | None = None
    shared_unit: int = 128
    register_unit: int = 256
    registers_per_thread: int = 256
    partitions: int = 4
    checked_partitions: int = 4


_UP_TO_100 = (0, 8, 16, 32, 64, 100)
_UP_TO_164 = (*_UP_TO_100, 132, 164)
_UP_TO_228 = (*_UP_TO_164, 196, 228)

_MAXWELL = Architecture(shared_unit=256, registers_per_thread=255)
_VOLTA = Architecture(shared_unit=256, carve_outs=(0, 8, 16, 32, 64, 96))
_AMPERE = Architecture(carve_outs=_UP_TO_164)
_AMPERE_SMALL = Architecture(carve_outs=_UP_TO_100)
_HOPPER = Architecture(carve_outs=_UP_TO_228, barriers_per_slot=2)

ARCHITECTURES = {
    (5, 0): _MAXWELL,
    (5, 2): _MAXWELL,
    (6, 0): replace(_MAXWELL, partitions=2),
    (6, 1): _MAXWELL,
    (7, 0): _VOLTA,
    (7, 5): replace(_VOLTA, carve_outs=(32, 64)),
    (8, 0): _AMPERE,
    (8, 6): _AMPERE_SMALL,
    (8, 7): _AMPERE,
    (8, 9): _AMPERE_SMALL,
    (9, 0): _HOPPER,
    (10, 0): _HOPPER,
    (10, 3): replace(_HOPPER, barriers_per_slot=1),
    (11, 0): replace(_HOPPER, barriers_per_slot=1),
    (12, 0): replace(_AMPERE_SMALL, barriers_per_slot=1),
    (12, 1): replace(_AMPERE_SMALL, barriers_per_slot=1),
}
"""Architectures by compute capability; source: `cuda_occupancy.h` of CUDA 13."""


def slot_threads(device: SmLimits) -> int:
    """Threads that a slot of the SM holds: a warp's, or on a textbook device one."""
    return device.warp_size if device.granularity is None else 1


def by_warps(device: SmLimits, threads: int) -> int:
    """Blocks that the SM's warps allow (on a textbook device its threads)."""
    if threads > device.threads_per_block:
        return 0
    slot = slot_threads(device)
    return device.threads_per_sm // slot // ceil_div(threads, slot)


def by_registers(device: SmLimits, threads: int, registers: int) -> int | None:
    """Blocks that the registers allow; None if the kernel uses none.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    if device.granularity is not None:
        largest, needed = device.registers_per_block, registers * threads
        return _quotient(device.registers_per_sm, largest, needed, device.granularity)
    rules = _rules(device)
    if registers == 0:
        return None
    warps = ceil_div(threads, device.warp_size)
    warp_registers = round_up(registers * device.warp_size, rules.register_unit)
    # The launch check assumes that every partition gets as many warps as the fullest one.
    checked = warp_registers * round_up(warps, rules.checked_partitions)
    if registers > rules.registers_per_thread or checked > device.registers_per_block:
        return 0
    partition_registers = device.registers_per_sm // rules.partitions
    return partition_registers // warp_registers * rules.partitions // warps


def preferred_shared(device: SmLimits, carve_out: int | None) -> int:
    """Bytes of shared memory that the SM has for a preferred share in percent, as long as each
    block fits; None is the driver's default.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    return _sm_shared(device, _preferred(device, carve_out))


def by_shared(device: SmLimits, shared: int, carve_out: int | None = None) -> int | None:
    """Blocks that the shared memory allows; None if the kernel takes none.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    if device.granularity is not None:
        largest = device.shared_per_block_optin
        return _quotient(device.shared_per_sm, largest, shared, device.granularity)
    rules, reserved = _rules(device), device.reserved_shared_per_block
    block_bytes = round_up(shared + reserved, rules.shared_unit)
    if block_bytes == 0:
        return None
    if block_bytes > device.shared_per_block_optin + reserved:
        return 0
    # A block larger than the preference still runs: the SM takes the next size that fits it.
    return _sm_shared(device, max(_preferred(device, carve_out), block_bytes)) // block_bytes


def by_barriers(device: SmLimits, barriers: int) -> int | None:
    """Blocks that the named barriers allow; None where they do not limit.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    slots = None if device.granularity is not None else _rules(device).barriers_per_slot
    if slots is None or barriers == 0:
        return None
    return slots * device.blocks_per_sm // barriers


def _preferred(device: SmLimits, carve_out: int | None) -> int:
    return device.shared_per_sm * (100 if carve_out is None else carve_out) // 100


def _sm_shared(device: SmLimits, least: int) -> int:
    """The smallest shared memory of the SM with at least that many bytes."""
    carve_outs = () if device.granularity is not None else _rules(device).carve_outs
    sizes = (1024 * size for size in carve_outs)
    return next((size for size in sizes if size >= least), device.shared_per_sm)


def _rules(device: SmLimits) -> Architecture:
    try:
        return ARCHITECTURES[device.compute_capability]
    except KeyError:
        major, minor = device.compute_capability
        supported = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise DeviceError(
            f"{device.name}: no occupancy rules for compute capability {major}.{minor}; "
            f"take a device of one of {supported}"
        ) from None


def _quotient(of_sm: int, largest: int, needed: int, granularity: int) -> int | None:
    if needed == 0:
        return None
    allocated = round_up(needed, granularity)
    return of_sm // allocated if allocated <= largest else 0
