"""Every limit of an SM as a table, for programs that compute nothing themselves.

The resident blocks of a kernel are the least of what the tables allow.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from autotune.device import SmLimits
from autotune.occupancy.limits import (
    by_barriers,
    by_registers,
    by_shared,
    by_warps,
    preferred_shared,
    slot_threads,
)
from autotune.occupancy.sweeps import most_registers, most_shared
from autotune.problem.integers import ceil_div

BARRIERS = 16
"""Most named barriers of a block (PTX ISA, `bar`)."""


@dataclass(frozen=True)
class LimitTables:
    """The limits of an SM on the blocks of a kernel.

    A step table holds the largest amount with which 1 block is possible, 2 blocks, and so on to one
    more than the SM's block slots; more never bind. A kernel that takes nothing of what
    `unlimited` names is not limited by it.

    Attributes:
        slot: threads that occupy a slot of the SM: a warp's, or on a textbook device one.
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
    blocks = range(slot, device.threads_per_block + 1, slot)
    shares = [preferred_shared(device, share) for share in (None, *range(101))]
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
