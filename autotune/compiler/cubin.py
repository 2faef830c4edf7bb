"""Reads from a cubin how a kernel may be launched, and which sections the module has.

A cubin is an ELF file. `.nv.info.<symbol>` lists attributes of a kernel, each as a form, a number
and a value; `cuobjdump -elf` prints them under the names that stand below (CUDA 12 and 13).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from autotune.families.plan import Launch

Extent3 = tuple[int, int, int]

_MAX_THREADS = 0x05  # EIATTR_MAX_THREADS: PTX .maxntid, __launch_bounds__
_REQUIRED_BLOCK = 0x10  # EIATTR_REQNTID: PTX .reqntid, __block_size__
_CLUSTER = 0x3D  # EIATTR_CTA_PER_CLUSTER: PTX .reqnctapercluster
_EXPLICIT_CLUSTER = 0x3E  # EIATTR_EXPLICIT_CLUSTER: PTX .explicitcluster, __cluster_dims__
_GRID_OF_CLUSTERS = 0x5B  # PTX .blocksareclusters, __block_size__
_SIZED = 4
"""The form of an attribute whose value follows it, after the number of its bytes."""

LARGEST_CLUSTER = 8
"""Blocks of the largest cluster that CUDA launches without an opt-in (CUDA C++ Programming Guide,
thread block clusters)."""


@dataclass(frozen=True)
class Refusal:
    """Why CUDA refuses a launch: a short reason, and what is wrong with its numbers."""

    reason: str
    detail: str


@dataclass(frozen=True)
class LaunchBounds:
    """The launches that a compiled kernel allows.

    Attributes:
        threads: most threads a block; None if it states none.
        block: the only block size; None if it requires none.
        cluster: blocks of a cluster along x, y and z.
        open_cluster: whether each launch has to name a cluster, as the kernel names none.
        grid_of_clusters: whether a grid counts clusters rather than blocks.
    """

    threads: int | None = None
    block: Extent3 | None = None
    cluster: Extent3 = (1, 1, 1)
    open_cluster: bool = False
    grid_of_clusters: bool = False

    @classmethod
    def of(cls, cubin: bytes, symbol: str) -> LaunchBounds:
        """The bounds of a kernel; none if the cubin does not have its attributes."""
        stated = dict(_attributes(sections(cubin).get(f".nv.info.{symbol}", b"")))
        threads, block, cluster = map(stated.get, (_MAX_THREADS, _REQUIRED_BLOCK, _CLUSTER))
        return cls(
            threads=None if threads is None else prod(_extent(threads)),
            block=None if block is None else _extent(block),
            cluster=(1, 1, 1) if cluster is None else _extent(cluster),
            open_cluster=_EXPLICIT_CLUSTER in stated and cluster is None,
            grid_of_clusters=_GRID_OF_CLUSTERS in stated,
        )

    @property
    def cluster_blocks(self) -> int:
        """Blocks of a cluster."""
        return prod(self.cluster)

    def refusal(self, launch: Launch) -> Refusal | None:
        """Why CUDA refuses a launch of the kernel; None if nothing compiled speaks against it."""
        if self.block is not None and launch.block != self.block:
            detail = f"{_times(launch.block)} threads, the kernel requires {_times(self.block)}"
            return Refusal("required block", detail)
        if self.threads is not None and launch.threads > self.threads:
            bound = f"the kernel's launch bound is {self.threads}"
            return Refusal("launch bound", f"{launch.threads} threads a block, {bound}")
        if self.open_cluster:
            detail = "the kernel leaves its cluster to the launch; write __cluster_dims__(x, y, z)"
            return Refusal("cluster", detail)
        if self.cluster_blocks > LARGEST_CLUSTER:
            limit = f"CUDA allows {LARGEST_CLUSTER} without an opt-in, which is not made here"
            return Refusal("cluster", f"{self.cluster_blocks} blocks a cluster, {limit}")
        if not self.grid_of_clusters and any(
            blocks % step for blocks, step in zip(launch.grid, self.cluster, strict=True)
        ):
            detail = f"{_times(launch.grid)} blocks, not a multiple of the cluster's"
            return Refusal("grid", f"{detail} {_times(self.cluster)}")
        return None


def sections(cubin: bytes) -> Mapping[str, bytes]:
    """The contents of the sections of an ELF file of 64 bits by their names; none of other data."""
    try:
        return dict(_sections(cubin)) if cubin.startswith(b"\x7fELF") else {}
    except (struct.error, ValueError, IndexError):
        return {}


def _sections(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    headers = [
        struct.unpack_from("<IIQQQQ", cubin, start + number * size) for number in range(count)
    ]
    names = headers[names_at][4]
    for name, _, _, _, offset, length in headers:
        end = cubin.index(b"\0", names + name)
        yield cubin[names + name : end].decode(), cubin[offset : offset + length]


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + 4 <= len(data):
        form, attribute, size = struct.unpack_from("<BBH", data, at)
        length = size if form == _SIZED else 0
        yield attribute, data[at + 4 : at + 4 + length]
        at += 4 + length


def _extent(value: bytes) -> Extent3:
    x, y, z = struct.unpack("<III", value[:12])
    return x, y, z


def _times(sizes: Extent3) -> str:
    return " x ".join(map(str, sizes))
