"""Resident blocks of a kernel on an SM, and which of the SM's limits binds.

The arithmetic is that of NVIDIA's `cuda_occupancy.h` (CUDA 13), against which the tests compare it
case by case. It needs no GPU.

Clusters are not part of that header: the SMs of a cluster lie in one GPC (CUDA C++ Programming
Guide, thread block clusters), and only the driver knows the GPCs (`cuOccupancyMaxActiveClusters`).
Their number comes from `Device.resident_clusters`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from autotune.device import Device, SmLimits
from autotune.errors import DeviceError, UsageError
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


@dataclass(frozen=True)
class Occupancy:
    """Resident blocks of a kernel on an SM.

    Attributes:
        blocks_per_sm: resident blocks; 0 if the kernel cannot run.
        warps_per_sm: resident warps.
        occupancy: resident warps as a share (0..1) of the warps that the SM can hold; on a
            textbook device resident threads as a share of its threads.
        by_warps: blocks that the SM's warps allow (on a textbook device its threads).
        by_blocks: blocks that the SM's block slots allow.
        by_registers: blocks that the registers allow; None if the kernel uses none.
        by_shared: blocks that the shared memory allows; None if the kernel takes none.
        by_barriers: blocks that the named barriers allow; None where they do not limit.
        cluster: blocks of a cluster.
        clusters: resident clusters on the device; None without clusters.
        idle_sms: SMs left without a block, as no cluster has room there; they are shared out
            between the GPCs.
    """

    blocks_per_sm: int
    warps_per_sm: int
    occupancy: float
    by_warps: int
    by_blocks: int
    by_registers: int | None
    by_shared: int | None
    by_barriers: int | None
    cluster: int = 1
    clusters: int | None = None
    idle_sms: int = 0

    @property
    def limits(self) -> dict[str, int]:
        """Every limit that applies, in blocks."""
        limits = {
            "warps": self.by_warps,
            "blocks": self.by_blocks,
            "registers": self.by_registers,
            "shared memory": self.by_shared,
            "barriers": self.by_barriers,
        }
        return {name: blocks for name, blocks in limits.items() if blocks is not None}

    @property
    def limiters(self) -> tuple[str, ...]:
        """The binding limits: those that allow no more than `blocks_per_sm`, and `clusters` where
        they leave SMs idle."""
        binding = tuple(name for name, n in self.limits.items() if n == self.blocks_per_sm)
        return (*binding, "clusters") if self.idle_sms else binding

    @property
    def limiter(self) -> str:
        """`limiters` as text, such as `warps and registers`."""
        return " and ".join(self.limiters)


def occupancy(
    device: SmLimits,
    *,
    threads: int,
    registers: int,
    shared: int,
    barriers: int = 1,
    carve_out: int | None = None,
    cluster: int = 1,
) -> Occupancy:
    """The resident blocks of a kernel on one SM of `device`, and its clusters on the whole device.

    With r resident blocks an SM, at least r x `Device.resident_clusters` clusters are resident. The
    driver may find room for a few more: on an H200 for 62 instead of 60 clusters of 4 with r = 2.

    Args:
        device: the device, or the SM of a compute capability; a device with a `granularity` is a
            textbook device, with plain division.
        threads: threads a block.
        registers: registers a thread.
        shared: bytes of shared memory a block, static and dynamic; opted in where needed.
        barriers: named barriers a block.
        carve_out: preferred share of the SM's largest shared memory, in percent (the attribute
            PREFERRED_SHARED_MEMORY_CARVEOUT); None, the driver's default, is the largest.
        cluster: blocks of a cluster: 1, 2, 4 or 8. Where the device has no clusters of that size
            the kernel cannot run.

    Raises:
        UsageError: for less than one thread, a negative amount, a carve-out outside 0..100,
            another size of a cluster, or clusters on an SM without a device.
        DeviceError: for a compute capability whose rules are unknown.
    """
    if threads < 1 or min(registers, shared, barriers) < 0:
        raise UsageError(
            f"no kernel has {threads} threads a block, {registers} registers a thread, {shared} "
            f"bytes of shared memory and {barriers} barriers; give at least 1 thread and nothing "
            "negative"
        )
    if carve_out is not None and not 0 <= carve_out <= 100:
        raise UsageError(f"the carve-out is {carve_out}; give 0 to 100 per cent of shared memory")
    if device.granularity is not None:
        alone = _textbook(device, device.granularity, threads, registers, shared)
    else:
        rules = _rules(device)
        alone = _resident(
            device,
            threads,
            device.warp_size,
            _by_registers(device, rules, threads, registers),
            _by_shared(device, rules, shared, carve_out),
            _by_barriers(device, rules, barriers),
        )
    return alone if cluster == 1 else _clustered(device, alone, cluster)


def _clustered(device: SmLimits, alone: Occupancy, cluster: int) -> Occupancy:
    """The occupancy of blocks in clusters, from that of the same blocks on their own."""
    if not isinstance(device, Device):
        raise UsageError(
            f"clusters of {cluster} blocks lie in the GPCs of a card, and {device.name} names "
            "none; give a card, such as h100"
        )
    at_once = device.resident_clusters(cluster)
    if alone.blocks_per_sm == 0:
        return replace(alone, cluster=cluster, clusters=0)
    if at_once == 0:
        nothing = replace(alone, blocks_per_sm=0, warps_per_sm=0, occupancy=0.0)
        return replace(nothing, cluster=cluster, clusters=0, idle_sms=device.sms)
    idle = device.sms - at_once * cluster
    return replace(alone, cluster=cluster, clusters=alone.blocks_per_sm * at_once, idle_sms=idle)


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


def _by_registers(
    device: SmLimits, rules: Architecture, threads: int, registers: int
) -> int | None:
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


def _by_shared(
    device: SmLimits, rules: Architecture, shared: int, carve_out: int | None
) -> int | None:
    reserved = device.reserved_shared_per_block
    block_bytes = round_up(shared + reserved, rules.shared_unit)
    if block_bytes == 0:
        return None
    if block_bytes > device.shared_per_block_optin + reserved:
        return 0
    if carve_out is None or not rules.carve_outs:
        return device.shared_per_sm // block_bytes
    # A block larger than the preference still runs: the SM takes the next size that fits it.
    least = max(device.shared_per_sm * carve_out // 100, block_bytes)
    sizes = (1024 * size for size in rules.carve_outs)
    return next((size for size in sizes if size >= least), device.shared_per_sm) // block_bytes


def _by_barriers(device: SmLimits, rules: Architecture, barriers: int) -> int | None:
    if rules.barriers_per_slot is None or barriers == 0:
        return None
    return rules.barriers_per_slot * device.blocks_per_sm // barriers


def _textbook(
    device: SmLimits, granularity: int, threads: int, registers: int, shared: int
) -> Occupancy:
    """Plain division as in textbooks; registers are allocated to whole blocks."""
    by_registers = _quotient(
        device.registers_per_sm, device.registers_per_block, registers * threads, granularity
    )
    by_shared = _quotient(device.shared_per_sm, device.shared_per_block_optin, shared, granularity)
    return _resident(device, threads, 1, by_registers, by_shared, None)


def _quotient(of_sm: int, largest: int, needed: int, granularity: int) -> int | None:
    if needed == 0:
        return None
    allocated = round_up(needed, granularity)
    return of_sm // allocated if allocated <= largest else 0


def _resident(
    device: SmLimits,
    threads: int,
    unit: int,
    by_registers: int | None,
    by_shared: int | None,
    by_barriers: int | None,
) -> Occupancy:
    """The smallest of the limits; threads occupy the SM's slots in units of `unit` threads."""
    slots = device.threads_per_sm // unit
    used = ceil_div(threads, unit)
    by_warps = slots // used if threads <= device.threads_per_block else 0
    limits = (by_warps, device.blocks_per_sm, by_registers, by_shared, by_barriers)
    blocks = min([limit for limit in limits if limit is not None])
    return Occupancy(
        blocks, ceil_div(blocks * used * unit, device.warp_size), blocks * used / slots, *limits
    )
