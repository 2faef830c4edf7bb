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
from autotune.errors import UsageError
from autotune.occupancy.limits import by_barriers, by_registers, by_shared, by_warps, slot_threads
from autotune.problem.integers import ceil_div


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
