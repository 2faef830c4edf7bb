"""The identity and the limits of a GPU, and a catalogue of known ones."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """What a kernel has to fit into, and how fast it could run there.

    Attributes:
        name: as the driver gives it, such as `NVIDIA H100 80GB HBM3`.
        compute_capability: (major, minor).
        sms: streaming multiprocessors.
        warp_size: threads a warp.
        registers_per_block: 32-bit registers that one block may take (regsPerBlock).
        registers_per_sm: 32-bit registers of an SM.
        shared_per_block: bytes a block gets without asking (sharedMemPerBlock).
        shared_per_block_optin: bytes a block gets through the opt-in attribute.
        shared_per_sm: bytes of shared memory of an SM.
        reserved_shared_per_block: bytes the driver takes of each block's share.
        threads_per_block: largest block.
        threads_per_sm: most resident threads.
        blocks_per_sm: most resident blocks.
        l2_bytes: size of the L2 cache.
        memory_bytes: device memory.
        sm_clock: boost clock in Hz.
        memory_clock: memory clock in Hz, as the driver counts it (not the data rate).
        memory_bandwidth: peak bytes a second of device memory.
        peak_fp32: peak fp32 FLOP/s outside the tensor cores (a fused multiply-add counts two).
        granularity: allocation unit of registers and shared memory where the device has one of
            its own (the textbook devices); None takes the architecture's.
    """

    name: str
    compute_capability: tuple[int, int]
    sms: int
    warp_size: int
    registers_per_block: int
    registers_per_sm: int
    shared_per_block: int
    shared_per_block_optin: int
    shared_per_sm: int
    reserved_shared_per_block: int
    threads_per_block: int
    threads_per_sm: int
    blocks_per_sm: int
    l2_bytes: int
    memory_bytes: int
    sm_clock: int
    memory_clock: int
    memory_bandwidth: float
    peak_fp32: float
    granularity: int | None = None

    @property
    def slug(self) -> str:
        """The name as part of a path: lower case, other characters than a-z and 0-9 as `-`."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def arch(self) -> str:
        """The compiler's target, such as `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"
