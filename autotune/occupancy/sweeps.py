"""Occupancy over many kernels: the best block sizes, and what a block may take for N blocks."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.device import SmLimits
from autotune.errors import UsageError
from autotune.occupancy.calculator import Occupancy, occupancy
from autotune.occupancy.limits import by_registers, by_shared, slot_threads

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
        return occupancy(
            device,
            threads=self.threads,
            registers=self.registers,
            shared=self.shared,
            barriers=self.barriers,
            carve_out=self.carve_out,
            cluster=self.cluster,
        )


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
        amounts: of the resource, ascending.
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


@dataclass(frozen=True)
class Headroom:
    """The most that a block may take so that an SM still holds a number of blocks.

    Attributes:
        blocks: resident blocks an SM.
        occupancy: the share (0..1) of the SM's warps that they are; 0 if they cannot be resident.
        limiter: the limits that rule the number out whatever the block takes, as text; empty if
            it is possible.
        registers: most registers a thread; 0 if the number is impossible.
        shared: most bytes of shared memory a block; 0 if the number is impossible.
    """

    blocks: int
    occupancy: float
    limiter: str
    registers: int
    shared: int


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


def headroom(device: SmLimits, demand: BlockDemand, blocks: int) -> Headroom:
    """The most registers and shared memory of a block with which an SM holds that many.

    The two do not depend on each other: a block may take both at once.

    Args:
        device: the device.
        demand: the block; its registers and shared memory are left out of account.
        blocks: resident blocks an SM, at least 1.

    Raises:
        UsageError: for less than one block, or impossible amounts.
    """
    if blocks < 1:
        raise UsageError(f"{blocks} blocks an SM; give 1 or more")
    bare = replace(demand, registers=0, shared=0)
    resident = bare.on(device)
    if resident.blocks_per_sm < blocks:
        return Headroom(blocks, 0.0, resident.limiter, 0, 0)
    share = resident.occupancy * blocks / resident.blocks_per_sm
    registers = most_registers(device, demand.threads, blocks)
    return Headroom(blocks, share, "", registers, most_shared(device, demand.carve_out, blocks))


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
