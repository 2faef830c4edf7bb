"""The identity and the limits of a GPU.

The SMs of a cluster lie in one GPC (CUDA C++ Programming Guide, thread block clusters), and cards
of one model have their disabled SMs in different GPCs, so that only the driver knows how many
clusters are resident at once (`autotune.cuda.bindings` asks it). What the catalogue knows stands in
for its answer: what the driver of such cards said, else what the worst card of the model holds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import cache, lru_cache
from importlib import resources
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from autotune.device.sm import Sm, tensor_rate
from autotune.errors import DeviceError, UsageError
from autotune.files.decoding import NAMED_LINE, convert, shown
from autotune.problem.precision import PRECISIONS
from autotune.problem.words import DtypeLike, precision_of

Clusters: TypeAlias = tuple[int, int, int]

CLUSTER_SIZES = (2, 4, 8)
"""Blocks of the clusters whose number is known; 8 is the largest portable size."""

_GPCS = {9: 8, 10: 8}
"""GPCs of the largest die, by the major compute capability: NVIDIA H100 Tensor Core GPU
Architecture Whitepaper (GH100); GB100 is taken to have as many."""
_MOST_GPCS = 12
"""GPCs of GB202 (NVIDIA RTX Blackwell GPU Architecture Whitepaper); others have no more."""


@cache
def listed() -> Mapping[str, Any]:
    """`data/devices.json`, and `data/textbook.json` with the devices of exercises: the `sources` by
    key, and the `devices` with pairs of value and source.

    A card with clusters names the `clusters` that drivers of its model stated, or its `gpcs`.
    """
    data = resources.files("autotune") / "data"
    files = [data / name for name in ("devices.json", "textbook.json")]
    cards, textbook = (json.loads(file.read_text(encoding="utf-8")) for file in files)
    return {part: {**cards[part], **textbook[part]} for part in ("sources", "devices")}


def has_clusters(capability: tuple[int, int]) -> bool:
    """Whether blocks can form clusters: from compute capability 9.0 on."""
    return capability >= (9, 0)


@cache
def expected_clusters(capability: tuple[int, int], sms: int) -> Clusters:
    """Resident clusters of 2, 4 and 8 blocks, one block an SM, of a card that no driver described.

    A listed card with as many SMs gives them, else `least_clusters`.
    """
    cards = [
        card
        for card in listed()["devices"].values()
        if (tuple(card["compute_capability"]), card["sms"][0]) == (capability, sms)
    ]
    for card in cards:
        if "clusters" in card:
            two, four, eight = card["clusters"][0]
            return two, four, eight
    gpcs = [card["gpcs"][0] for card in cards if "gpcs" in card]
    return least_clusters(sms, max(gpcs, default=_GPCS.get(capability[0], _MOST_GPCS)))


def least_clusters(sms: int, gpcs: int) -> Clusters:
    """Clusters of 2, 4 and 8 blocks on the worst card with a number of SMs in a number of GPCs.

    A GPC has an even number of SMs, two a TPC, so that clusters of s blocks leave at most s - 2 of
    them idle: n SMs in g GPCs hold at least (n - g (s - 2)) / s clusters, rounded up.
    """
    two, four, eight = (
        max(0, min(sms // size, -((gpcs * (size - 2) - sms) // size))) for size in CLUSTER_SIZES
    )
    return two, four, eight


# Registers or bytes of shared memory; blocks and SMs have up to 2^18.
_Amount = Annotated[int, Meta(ge=1, le=2**24)]
_Clusters = Annotated[int, Meta(ge=0, le=4096)]
_ASCENDING = (
    ("registers_per_block", "registers_per_sm"),
    ("shared_per_block", "shared_per_block_optin"),
    ("shared_per_block_optin", "shared_per_sm"),
    ("threads_per_block", "threads_per_sm"),
)
# Cards whose tensor cores run at half rate with fp32 sums: RTX 2080 Ti, 3090, 4090 and 5090 reach
# 56.9, 71, 165.2 and 209.5 TFLOP/s by the whitepapers, the L40 181 by its datasheet.
_HALF_RATE = re.compile(r"GeForce|\bL40\b")


@dataclass(frozen=True)
class Device:
    """The limits a kernel has to fit into on a GPU, and the rates it could reach there.

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
        memory_clock: memory clock in Hz, as the driver counts it (not the data rate); 0 if
            unknown.
        memory_bandwidth: peak bytes a second of device memory.
        peak_fp32: peak fp32 FLOP/s outside the tensor cores (a fused multiply-add counts two).
        granularity: allocation unit of threads, registers and shared memory where the device has
            one of its own (the textbook devices); None takes the architecture's.
        clusters: clusters of 2, 4 and 8 blocks that are resident at once if each block fills an SM,
            as the driver states them; None if the driver was not asked. Two cards of one model may
            differ.
        clusters_expected: whether `clusters` are those to expect of a card of the catalogue, which
            no driver stated for this one. It is not part of the identity.
    """

    name: Annotated[str, Meta(max_length=200, pattern=NAMED_LINE)]
    compute_capability: tuple[
        Annotated[int, Meta(ge=1, le=99)],
        Annotated[int, Meta(ge=0, le=9)],
    ]
    sms: Annotated[int, Meta(ge=1, le=4096)]
    warp_size: Annotated[int, Meta(ge=32, le=32)]
    registers_per_block: _Amount
    registers_per_sm: _Amount
    shared_per_block: _Amount
    shared_per_block_optin: _Amount
    shared_per_sm: _Amount
    reserved_shared_per_block: Annotated[int, Meta(ge=0, le=2**20)]
    threads_per_block: Annotated[int, Meta(ge=1, le=1024)]
    threads_per_sm: Annotated[int, Meta(ge=32, le=2**16)]
    blocks_per_sm: Annotated[int, Meta(ge=1, le=1024)]
    l2_bytes: Annotated[int, Meta(ge=0, le=2**40)]
    memory_bytes: Annotated[int, Meta(ge=1, le=2**50)]
    sm_clock: Annotated[int, Meta(ge=1, le=10**11)]
    memory_clock: Annotated[int, Meta(ge=0, le=10**12)]
    memory_bandwidth: Annotated[float, Meta(ge=1, le=1e16)]
    peak_fp32: Annotated[float, Meta(ge=1, le=1e18)]
    granularity: Annotated[int, Meta(ge=1, le=2**20)] | None = None
    clusters: tuple[_Clusters, _Clusters, _Clusters] | None = None
    clusters_expected: bool = field(default=False, compare=False)

    @property
    def slug(self) -> str:
        """The name as part of a path: lower case, with `-` for other characters than a-z, 0-9."""
        return re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")

    @property
    def arch(self) -> str:
        """The compiler's target, such as `sm_90`."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}"

    @property
    def has_clusters(self) -> bool:
        """Whether blocks can form clusters: from compute capability 9.0 on."""
        return has_clusters(self.compute_capability)

    def resident_clusters(self, size: int) -> int:
        """Clusters of `size` blocks that are resident at once if each block fills an SM.

        The SMs of a cluster lie in one GPC (CUDA C++ Programming Guide, thread block clusters), so
        a GPC whose number of SMs is not a multiple of `size` leaves some idle. The number is the
        driver's (`cuOccupancyMaxActiveClusters`); where `clusters` is None it is what
        `expected_clusters` knows of such cards. A single block counts as a cluster of 1.
        Before compute capability 9.0 there are no clusters of more.

        Raises:
            UsageError: for a size other than 1, 2, 4 and 8.
        """
        if size == 1:
            return self.sms
        if size not in CLUSTER_SIZES:
            raise UsageError(f"a cluster of {size} blocks; give 1, 2, 4 or 8 blocks")
        if not self.has_clusters:
            return 0
        clusters = self.clusters or expected_clusters(self.compute_capability, self.sms)
        return clusters[CLUSTER_SIZES.index(size)]

    @property
    def knows_clusters(self) -> bool:
        """Whether the number of resident clusters is exact, or the card cannot form clusters."""
        return not self.has_clusters or (self.clusters is not None and not self.clusters_expected)

    def cluster_sms(self, size: int) -> int:
        """SMs that clusters of `size` blocks occupy if each block fills an SM.

        Raises:
            UsageError: as `resident_clusters`.
        """
        return self.resident_clusters(size) * size

    def tensor_rate(self, compute: DtypeLike) -> float | None:
        """Fused multiply-adds per clock of an SM's tensor cores; see `sm.tensor_rate`."""
        return _tensor_rate(self.compute_capability, self.name, precision_of(compute).name)

    def peak(self, compute: DtypeLike) -> float:
        """Peak FLOP/s of a precision at the boost clock, counting 2 M N K for a GEMM.

        This is the tensor cores' peak if it is the higher one, else `peak_fp32`; `tf32x3` computes
        three products for each. NVIDIA states the tensor cores' peak at a lower clock: for an H100
        SXM 989.4 TFLOP/s in bf16, at 1830 MHz instead of 1980.
        """
        rate = (self.tensor_rate(compute) or 0.0) / precision_of(compute).products
        return max(self.peak_fp32, self.sms * rate * 2.0 * self.sm_clock)

    def to_json(self) -> dict[str, object]:
        """The fields as JSON values; tuples become lists. `clusters` is left out where it is None,
        as earlier versions do not read it."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name != "clusters_expected" and (name != "clusters" or value is not None)
        }

    @classmethod
    def from_json(cls, mapping: object) -> Device:
        """Reads `to_json` back.

        Raises:
            DeviceError: for unknown, missing or mistyped fields, and for numbers that no device
                has; the message names them.
        """
        if not isinstance(mapping, Mapping):
            raise DeviceError(f"device is {shown(mapping)}; it must be an object")
        names = {entry.name for entry in fields(cls) if entry.compare}
        required = {entry.name for entry in fields(cls) if entry.default is MISSING}
        if unknown := sorted(mapping.keys() - names):
            raise DeviceError(f"unknown device fields: {', '.join(unknown)}; remove them")
        if missing := sorted(required - mapping.keys()):
            raise DeviceError(f"missing device fields: {', '.join(missing)}; add them")
        try:
            device = convert(mapping, cls, "device")
        except ValueError as error:
            raise DeviceError(f"device field {error}") from error
        for less, more in _ASCENDING:
            if getattr(device, less) > getattr(device, more):
                raise DeviceError(
                    f"device field {less} is {getattr(device, less)}; it must be at most {more}, "
                    f"{getattr(device, more)}"
                )
        for size, count in zip(CLUSTER_SIZES, device.clusters or (), strict=False):
            if count * size > device.sms:
                raise DeviceError(
                    f"device field clusters states {count} clusters of {size} blocks that fill an "
                    f"SM; {device.sms} SMs hold at most {device.sms // size}"
                )
        return device


SmLimits: TypeAlias = Device | Sm
"""The SM limits that decide how many blocks are resident."""


@lru_cache(maxsize=256)
def _tensor_rate(capability: tuple[int, int], name: str, compute: str) -> float | None:
    rate = tensor_rate(capability, compute)
    halved = PRECISIONS[compute].sums != "integer" and _HALF_RATE.search(name)
    return rate / 2 if rate and halved else rate
