"""Resident blocks of a kernel on an SM, and which of the SM's limits binds.

`occupancy` answers for one kernel; `curve` and `best_block_sizes` for many;
`limit_tables` has every limit of an SM, for programs that compute nothing themselves.

The arithmetic is that of NVIDIA's `cuda_occupancy.h` (CUDA 13), against which the tests compare it
case by case. It needs no GPU. A device with a `granularity` is a textbook device with plain
division, where registers are allocated to whole blocks: of threads (1) or of warps (32).

Clusters are not part of that header: the SMs of a cluster lie in one GPC (CUDA C++ Programming
Guide, thread block clusters), and only the driver knows the GPCs (`cuOccupancyMaxActiveClusters`).
Their number comes from `Device.resident_clusters`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from autotune.device import Device, SmLimits
from autotune.errors import DeviceError, UsageError
from autotune.problem.integers import ceil_div, round_up

__all__ = [
    "ARCHITECTURES",
    "BlockDemand",
    "Curve",
    "Occupancy",
    "best_block_sizes",
    "curve",
    "occupancy",
]


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
    """Threads that a slot of the SM holds: a warp's, or fewer if a textbook device counts so."""
    return min(device.granularity or device.warp_size, device.warp_size)


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
    if registers == 0:
        return None
    if device.granularity is not None:
        needed = allocated_registers(device, threads, registers)
        return device.registers_per_sm // needed if needed <= device.registers_per_block else 0
    rules = rules_of(device)
    warps = ceil_div(threads, device.warp_size)
    warp_registers = allocated_registers(device, device.warp_size, registers)
    # The launch check assumes that every partition gets as many warps as the fullest one.
    checked = warp_registers * round_up(warps, rules.checked_partitions)
    if registers > rules.registers_per_thread or checked > device.registers_per_block:
        return 0
    partition_registers = device.registers_per_sm // rules.partitions
    return partition_registers // warp_registers * rules.partitions // warps


def allocated_registers(device: SmLimits, threads: int, registers: int) -> int:
    """Registers that an SM allocates to a block: whole units to each of its warps.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    if device.granularity is not None:
        slots = round_up(threads, slot_threads(device))
        return round_up(registers * slots, device.granularity)
    warp_registers = round_up(registers * device.warp_size, rules_of(device).register_unit)
    return ceil_div(threads, device.warp_size) * warp_registers


def allocated_shared(device: SmLimits, shared: int) -> int:
    """Bytes of shared memory that an SM allocates to a block, with those that CUDA reserves.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    unit = device.granularity or rules_of(device).shared_unit
    return round_up(shared + device.reserved_shared_per_block, unit)


def sm_shared(device: SmLimits, carve_out: int | None, shared: int = 0) -> int:
    """Bytes of shared memory of an SM: its least size that has the preferred share, in percent, and
    room for a block with `shared` bytes. None prefers the largest, as the driver does.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    share = 100 if carve_out is None else carve_out
    least = max(allocated_shared(device, shared), device.shared_per_sm * share // 100)
    sizes = (1024 * size for size in rules_of(device).carve_outs)
    return next((size for size in sizes if size >= least), device.shared_per_sm)


def by_shared(device: SmLimits, shared: int, carve_out: int | None = None) -> int | None:
    """Blocks that the shared memory allows; None if the kernel takes none.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    allocated = allocated_shared(device, shared)
    if allocated == 0:
        return None
    if allocated > device.shared_per_block_optin + device.reserved_shared_per_block:
        return 0
    # A block larger than the preference still runs: the SM takes the next size that fits it.
    return sm_shared(device, carve_out, shared) // allocated


def by_barriers(device: SmLimits, barriers: int) -> int | None:
    """Blocks that the named barriers allow; None where they do not limit.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    slots = rules_of(device).barriers_per_slot
    if slots is None or barriers == 0:
        return None
    return slots * device.blocks_per_sm // barriers


def rules_of(device: SmLimits) -> Architecture:
    """The allocation rules of a device. A textbook device has no carve-outs and no barriers.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    if device.granularity is not None:
        return Architecture()
    try:
        return ARCHITECTURES[device.compute_capability]
    except KeyError:
        major, minor = device.compute_capability
        supported = ", ".join(f"{major}.{minor}" for major, minor in ARCHITECTURES)
        raise DeviceError(
            f"{device.name}: no occupancy rules for compute capability {major}.{minor}; "
            f"take a device of one of {supported}"
        ) from None


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
    limits = (
        by_warps(device, threads),
        device.blocks_per_sm,
        by_registers(device, threads, registers),
        by_shared(device, shared, carve_out),
        by_barriers(device, barriers),
    )
    blocks = min([limit for limit in limits if limit is not None])
    slot = slot_threads(device)
    used = blocks * ceil_div(threads, slot)
    warps, share = ceil_div(used * slot, device.warp_size), used / (device.threads_per_sm // slot)
    alone = Occupancy(blocks, warps, share, *limits)
    return alone if cluster == 1 else _clustered(device, alone, cluster)


def _clustered(device: SmLimits, alone: Occupancy, cluster: int) -> Occupancy:
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


LARGEST_BLOCK = 1024
"""Most threads of a block on any card (CUDA C++ Programming Guide)."""

LARGEST_REGISTERS = 255
"""Most registers of a thread from compute capability 3.5 on (CUDA C++ Programming Guide)."""


@dataclass(frozen=True)
class BlockDemand:
    """The resources that a block of a kernel takes, in the units of `occupancy`."""

    threads: int
    registers: int = 0
    shared: int = 0
    barriers: int = 1
    carve_out: int | None = None
    cluster: int = 1

    def on(self, device: SmLimits) -> Occupancy:
        """The occupancy of the kernel on a device.

        Raises:
            UsageError: for impossible amounts.
            DeviceError: for a compute capability whose rules are unknown.
        """
        return occupancy(device, **vars(self))


RESOURCES = ("threads", "registers", "shared")
"""Fields of `BlockDemand` that a curve may run over: threads a block, registers a thread, bytes of
shared memory a block."""

SHARED_STEP = 512
"""Bytes between two points of a curve over shared memory, besides its steps."""


@dataclass(frozen=True)
class Curve:
    """The occupancy over one resource of a block.

    It is a staircase, as an SM allocates whole warps, and units of registers and of shared memory:
    up to each amount, and above the amount before it, the block is as resident as at that amount.
    plotly draws it by the line shape `STAIRS`, matplotlib by `step(amounts, shares, where="pre")`.

    Attributes:
        amounts: amounts of the resource, ascending.
        resident: the occupancy with each amount.
    """

    amounts: tuple[int, ...]
    resident: tuple[Occupancy, ...]

    @property
    def shares(self) -> tuple[float, ...]:
        """The occupancy with each amount as a share (0..1)."""
        return tuple(each.occupancy for each in self.resident)


STAIRS = "vh"
"""The line shape of plotly that draws a `Curve`: up or down at an amount, then on to the next."""


def block_sizes(device: SmLimits) -> tuple[int, ...]:
    """The block sizes of whole warps that the device can run."""
    return tuple(range(device.warp_size, device.threads_per_block + 1, device.warp_size))


def curve(device: SmLimits, demand: BlockDemand, resource: str) -> Curve:
    """The occupancy over one of `RESOURCES`; the others are those of `demand`, whose own amount is
    among the curve's.

    Raises:
        UsageError: for impossible amounts.
        DeviceError: for a compute capability whose rules are unknown.
    """
    own = getattr(demand, resource)
    steps = tuple(sorted({own, *amounts(device, resource, demand.carve_out)}))
    return Curve(steps, tuple(replace(demand, **{resource: n}).on(device) for n in steps))


def amounts(device: SmLimits, resource: str, carve_out: int | None = None) -> tuple[int, ...]:
    """The amounts that a curve runs through: between two of them the occupancy does not change."""
    if resource == "registers":
        return tuple(range(1, LARGEST_REGISTERS + 1))
    if resource == "threads":
        slot = slot_threads(device)
        return tuple(sorted({1, *range(slot, device.threads_per_block + 1, slot)}))
    largest = device.shared_per_block_optin
    blocks = range(1, device.blocks_per_sm + 1)
    steps = {most_shared(device, carve_out, count) for count in blocks}
    return tuple(sorted({*range(0, largest, SHARED_STEP), *steps, largest} - {-1}))


def best_block_sizes(device: SmLimits, demand: BlockDemand) -> tuple[int, ...]:
    """The block sizes of whole warps with the highest occupancy, ascending; none if none runs.

    Args:
        device: the device.
        demand: what a block takes besides its threads, which are left out of account.
    """
    shares = {
        threads: replace(demand, threads=threads).on(device).occupancy
        for threads in block_sizes(device)
    }
    highest = max(shares.values())
    return tuple(threads for threads, share in shares.items() if share == highest > 0)


def most_registers(device: SmLimits, threads: int, blocks: int) -> int:
    """The most registers a thread with which registers allow that many blocks; -1 if none do."""
    return _most(LARGEST_REGISTERS, blocks, lambda n: by_registers(device, threads, n))


def most_shared(device: SmLimits, carve_out: int | None, blocks: int) -> int:
    """The most bytes of shared memory with which it allows that many blocks; -1 if none do."""
    largest = device.shared_per_block_optin
    return _most(largest, blocks, lambda n: by_shared(device, n, carve_out))


def _most(largest: int, blocks: int, limit: Callable[[int], int | None]) -> int:
    """The largest amount for which a limit that falls with the amount is at least `blocks`."""

    def too_few(amount: int) -> bool:
        allowed = limit(amount)
        return allowed is not None and allowed < blocks

    return bisect_right(range(largest + 1), False, key=too_few) - 1


BARRIERS = 16
"""Most named barriers of a block (PTX ISA, `bar`)."""


@dataclass(frozen=True)
class LimitTables:
    """The limits of an SM on the blocks of a kernel.

    A step table holds the largest amount with which 1 block is possible, 2 blocks, and so on to one
    more than the SM's block slots; more never bind. A kernel that takes nothing of what
    `unlimited` names is not limited by it.

    Attributes:
        slot: threads that occupy a slot of the SM; see `slot_threads`.
        blocks: block slots of the SM.
        warps: blocks that the slots allow, for a block of one slot, of two, and so on.
        registers: step tables in registers a thread, for a block of one slot, of two, and so on.
        shared: step tables in bytes, each once.
        carve_outs: the index in `shared` for the driver's default and for 0 to 100 per cent.
        barriers: blocks that 0 to 16 barriers allow; None where they do not limit.
        unlimited: the limits that do not apply to a kernel that takes 0 of them.
        shares: occupancy (0..1) with 0, 1, and so on resident slots.
        resident_warps: warps of 0, 1, and so on resident slots.
    """

    slot: int
    blocks: int
    warps: tuple[int, ...]
    registers: tuple[tuple[int, ...], ...]
    shared: tuple[tuple[int, ...], ...]
    carve_outs: tuple[int, ...]
    barriers: tuple[int | None, ...]
    unlimited: tuple[str, ...]
    shares: tuple[float, ...]
    resident_warps: tuple[int, ...]


def limit_tables(device: SmLimits) -> LimitTables:
    """The limits of a device's SM.

    Raises:
        DeviceError: for a compute capability whose rules are unknown.
    """
    slot = slot_threads(device)
    slots = device.threads_per_sm // slot
    blocks = range(slot, LARGEST_BLOCK + 1, slot)
    shares = [sm_shared(device, share) for share in (None, *range(101))]
    sizes = {size: share for share, size in zip((None, *range(101)), shares, strict=True)}
    zero = {"registers": by_registers(device, slot, 0), "shared memory": by_shared(device, 0)}
    return LimitTables(
        slot=slot,
        blocks=device.blocks_per_sm,
        warps=tuple(by_warps(device, threads) for threads in blocks),
        registers=tuple(
            _steps(device, partial(most_registers, device, threads)) for threads in blocks
        ),
        shared=tuple(_steps(device, partial(most_shared, device, each)) for each in sizes.values()),
        carve_outs=tuple(map([*sizes].index, shares)),
        barriers=tuple(by_barriers(device, barriers) for barriers in range(BARRIERS + 1)),
        unlimited=tuple(name for name, blocks in zero.items() if blocks is None),
        shares=tuple(used / slots for used in range(slots + 1)),
        resident_warps=tuple(ceil_div(used * slot, device.warp_size) for used in range(slots + 1)),
    )


def _steps(device: SmLimits, most: Callable[[int], int]) -> tuple[int, ...]:
    return tuple(most(blocks) for blocks in range(1, device.blocks_per_sm + 2))
