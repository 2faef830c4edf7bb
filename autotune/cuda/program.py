"""Compiled programs: their resources, launch bounds, and the hashes of their code and sources.

`ptxas -v` logs the resources of entry functions and performance losses. A cubin is an ELF file:
`.nv.info.<symbol>` lists attributes of a kernel, each as a form, a number and a value;
`cuobjdump -elf` prints them under the names that stand below (CUDA 12 and 13).
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache, partial
from hashlib import sha256
from math import prod
from pathlib import Path

from autotune import files, settings
from autotune.families.plan import Launch, Template
from autotune.files import limits

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

    def refusal(self, launch: Launch) -> tuple[str, str] | None:
        """Why CUDA refuses a launch of the kernel: a short reason, and what is wrong with its
        numbers; None if nothing compiled speaks against it."""
        if self.block is not None and launch.block != self.block:
            detail = f"{_times(launch.block)} threads, the kernel requires {_times(self.block)}"
            return "required block", detail
        if self.threads is not None and launch.threads > self.threads:
            bound = f"the kernel's launch bound is {self.threads}"
            return "launch bound", f"{launch.threads} threads a block, {bound}"
        if self.open_cluster:
            detail = "the kernel leaves its cluster to the launch; write __cluster_dims__(x, y, z)"
            return "cluster", detail
        if self.cluster_blocks > LARGEST_CLUSTER:
            limit = f"CUDA allows {LARGEST_CLUSTER} without an opt-in, which is not made here"
            return "cluster", f"{self.cluster_blocks} blocks a cluster, {limit}"
        if not self.grid_of_clusters and any(
            blocks % step for blocks, step in zip(launch.grid, self.cluster, strict=True)
        ):
            detail = f"{_times(launch.grid)} blocks, not a multiple of the cluster's"
            return "grid", f"{detail} {_times(self.cluster)}"
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


@dataclass(frozen=True)
class Program:
    """A compiled instance of a kernel template.

    Attributes:
        template: kernel that was compiled.
        arch: the target, such as `sm_90`, or `sm_90a` for a template that is specific to it.
        cubin: the machine code.
        symbol: the mangled name of the kernel in the cubin.
        registers: registers a thread.
        shared: static shared memory a block in bytes.
        local: local memory a thread in bytes (stack frame; more than 0 with spills).
        spills: bytes of spill stores and loads.
        barriers: named barriers a block.
        compiler: the compiler and its version, such as `NVRTC 13.0`.
        key: the cache key, which covers source, includes, options, compiler and architecture.
        log: the compiler's output.
    """

    template: Template
    arch: str
    cubin: bytes
    symbol: str
    registers: int
    shared: int
    local: int
    spills: int
    barriers: int
    compiler: str
    key: str
    log: str

    @cached_property
    def bounds(self) -> LaunchBounds:
        """The launches that the kernel allows."""
        return LaunchBounds.of(self.cubin, self.symbol)


CODE_DIGITS = 16
"""Hexadecimal digits of a `code_digest`."""


def code_digest(programs: Iterable[Program]) -> str:
    """A hash of the machine code of a launch sequence; empty if a program has none, or without any.

    It covers the instructions, the constants, the registers and the static shared memory. The
    offsets of kernel parameters are masked, so that another struct of the same parameters leaves
    it. Names of symbols are left out: those in unnamed namespaces vary.
    """
    parts = [
        [sorted(_code(program.cubin)), program.registers, program.shared] for program in programs
    ]
    if not parts or not all(code for code, *_ in parts):
        return ""
    return sha256(json.dumps(parts).encode()).hexdigest()[:CODE_DIGITS]


def _code(cubin: bytes) -> Iterator[tuple[str, str]]:
    """The kind and the hash of each section with instructions or constants; bank 0 has the
    parameters."""
    for name, content in sections(cubin).items():
        kind, _, bank = name[1:].partition(".")
        if kind == "text":
            yield kind, sha256(_without_parameters(content)).hexdigest()
        elif kind == "nv" and (number := _CONSTANTS.match(bank)) and number[1] != "0":
            yield number[0], sha256(content).hexdigest()


_CONSTANTS = re.compile(r"constant(\d+)")
_FORM_BITS, _CONSTANT_FORMS = 9, (3, 5)  # 3 bits: operand B or C is a constant
_BANK_BITS, _OFFSET_BITS = 54, 38  # 5 bits and 16 bits
_BARRIER = 0xB1D  # BAR: its operand form is another


def _without_parameters(text: bytes) -> bytes:
    """Instructions with the offsets into constant bank 0 set to 0.

    An instruction has 16 bytes since compute capability 7.0; the fields stand in its first 8.
    `nvdisasm` prints `c[0x0][offset]` for exactly these instructions (sm_80 to sm_90).
    """
    import numpy as np

    whole = len(text) - len(text) % 16
    words = np.frombuffer(text[:whole], dtype="<u8").copy()
    low = words[::2]
    constant = np.isin(low >> np.uint64(_FORM_BITS) & np.uint64(7), _CONSTANT_FORMS)
    bank = low >> np.uint64(_BANK_BITS) & np.uint64(0x1F)
    parameter = constant & (bank == 0) & (low & np.uint64(0xFFF) != _BARRIER)
    low[parameter] &= np.uint64(~(0xFFFF << _OFFSET_BITS) & (1 << 64) - 1)
    return bytes(words.tobytes()) + text[whole:]


@dataclass(frozen=True)
class CompileFailure:
    """A template that did not compile: the compiler's log, and its first error line as `reason`."""

    template: Template
    arch: str
    reason: str
    log: str


_ENTRY = "Compiling entry function '"
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# `setmaxnreg` without effect (C7508); wgmma serialised throughout (C7510 and its neighbours) or in
# one place (C7517).
_LOSS = re.compile(
    r"Potential Performance Loss: (?P<lost>.*)|(?P<injected>wgmma\.wait_group is injected .*)"
)


def symbol(log: str, kernel: str) -> str | None:
    """The mangled name of `kernel`, which is given without template arguments.

    The Itanium C++ ABI writes an identifier as its length and its text. None if the log names no
    such entry function, or several.
    """
    name = kernel.rpartition("::")[2]
    mangled = re.compile(rf"(?<!\d){len(name)}{re.escape(name)}")
    entries = [part.partition("'")[0] for part in log.split(_ENTRY)[1:]]
    matches = [entry for entry in entries if entry == name or mangled.search(entry)]
    return matches[0] if len(matches) == 1 else None


def usage(log: str, symbol: str) -> dict[str, int] | None:
    """Resources of an entry function, as fields of `Program`; None if the log states none."""
    section = log.partition(f"{_ENTRY}{symbol}'")[2].partition(_ENTRY)[0]
    frame = _FRAME.search(section)
    registers = re.search(r"Used (\d+) registers", section)
    if frame is None or registers is None:
        return None
    stack, stores, loads = (int(size) for size in frame.groups())
    return {
        "registers": int(registers[1]),
        "shared": _number(r"(\d+) bytes smem", section, absent=0),
        # The frame is the entry function's own; the cumulative size includes its callees.
        "local": _number(r"(\d+) bytes cumulative stack size", section, absent=stack),
        "spills": stores + loads,
        "barriers": _number(r"used (\d+) barriers", section, absent=0),
    }


def loss(log: str) -> str | None:
    """The performance loss that ptxas reports; None if it reports none."""
    match = _LOSS.search(log)
    return (match["lost"] or match["injected"]).strip() if match else None


def _number(pattern: str, text: str, *, absent: int) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else absent


_INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def source_hash(
    *sources: str, directory: Path | None = None, includes: Sequence[Path] | None = None
) -> str:
    """SHA-256 over the named CUDA sources and every header they reach.

    Args:
        sources: file names in `directory`.
        directory: the folder of the CUDA sources; None takes the package's.
        includes: folders searched for headers; None takes `directory/include`.

    Raises:
        OSError: if a named source cannot be read.
    """
    root = directory or settings.source_dir()
    if directory is None and includes is None:
        return _hash_in_state(sources, root, tuple(_state(str(root))))
    return _hash(sources, root, (root / "include",) if includes is None else includes)


def source_hashes(sources: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The `source_hash` of each named list of the package's sources.

    Raises:
        OSError: if a named source cannot be read.
    """
    root = settings.source_dir()
    state = tuple(_state(str(root)))  # once: it takes longer than a cached hash
    return {name: _hash_in_state(tuple(listed), root, state) for name, listed in sources.items()}


@lru_cache(maxsize=64)
def _hash_in_state(
    sources: tuple[str, ...], root: Path, state: tuple[tuple[str, int, int], ...]
) -> str:
    """The hash of the package's sources, whose folder in that state holds all their headers."""
    del state
    return _hash(sources, root, (root / "include",))


def _state(folder: str) -> Iterator[tuple[str, int, int]]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _state(entry.path)
            else:
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size


def _hash(sources: Sequence[str], root: Path, folders: Sequence[Path]) -> str:
    pending = [(name, root / name) for name in sources]
    digests: dict[Path, tuple[str, str]] = {}
    resolved = cache(partial(_resolved, folders=folders))
    while pending:
        name, path = pending.pop()
        if path not in digests:
            status = path.stat()
            digest, headers = _read(path, status.st_mtime_ns, status.st_size)
            digests[path] = name, digest
            beside = () if path.parent == root else (path.parent,)
            for header in headers:
                pending += _resolved(header, beside) or resolved(header)
    return sha256(json.dumps(sorted(digests.values())).encode()).hexdigest()


@lru_cache(maxsize=4096)  # CUB has 1000 headers
def _read(path: Path, changed_ns: int, size: int) -> tuple[str, tuple[str, ...]]:
    """The SHA-256 of a file in that state, and the headers that it includes."""
    del changed_ns, size
    text = files.read(path, limits.SOURCE)
    return sha256(text).hexdigest(), tuple(name.decode() for name in _INCLUDE.findall(text))


def _resolved(header: str, folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The file an include directive resolves to, with its name in the hash; empty if none exists.

    Folders are searched in order, as the compiler does.
    """
    paths = (folder / header for folder in folders)
    matches = [(f"{path.parent.name}/{path.name}", path) for path in paths if path.is_file()]
    return matches[:1]
