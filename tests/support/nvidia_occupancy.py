"""NVIDIA's occupancy calculator, `cuda_occupancy.h`, and random kernels to compare it on."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from importlib.metadata import distribution
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.device import SMS, SmLimits
from autotune.occupancy import ARCHITECTURES, Occupancy, occupancy
from support.paths import TESTS

INT_MAX = 2**31 - 1
# A block of the Tegra X1 gets half of the SM's registers.
TEGRA = replace(SMS[5, 0], registers_per_block=32768)
DEVICES: dict[tuple[int, int], SmLimits] = {**SMS, (5, 0): TEGRA}

Kernel = tuple[int, int, int, int, int | None]
"""A kernel: threads, registers, shared bytes, barriers, carve-out."""


def compiled(folder: Path) -> ctypes.CDLL:
    """NVIDIA's cuda_occupancy.h as a shared library in a folder."""
    files = distribution("nvidia-cuda-runtime").files or []
    header = next(file for file in files if file.name == "cuda_occupancy.h").locate()
    source = TESTS / "support" / "occupancy.cpp"
    library = folder / "occupancy.so"
    command = [os.environ.get("CXX", "c++"), "-O2", "-shared", "-fPIC", f"-I{Path(header).parent}"]
    subprocess.run([*command, source, "-o", library], check=True)
    return ctypes.CDLL(str(library))


def nvidia(oracle: ctypes.CDLL, device: SmLimits, kernels: Sequence[Kernel]) -> NDArray[np.int32]:
    """NVIDIA's answers: resident blocks, then the limit by each resource; INT_MAX for no limit."""
    d = device
    limits = [d.threads_per_block, d.threads_per_sm, d.registers_per_block, d.registers_per_sm]
    limits += [d.warp_size, d.shared_per_block, d.shared_per_block_optin, d.shared_per_sm]
    head = [*d.compute_capability, *limits, d.reserved_shared_per_block]
    cases = np.array(
        [
            [*head, threads, registers, *static_dynamic(shared), barriers, -1 if c is None else c]
            for threads, registers, shared, barriers, c in kernels
        ],
        dtype=np.int32,
    )
    answers = np.empty((len(kernels), 6), dtype=np.int32)
    answered = oracle.occupancy(
        len(kernels),
        cases.ctypes.data_as(ctypes.c_void_p),
        answers.ctypes.data_as(ctypes.c_void_p),
    )
    assert answered == len(kernels), f"cuda_occupancy.h refuses {kernels[answered]} on {d.name}"
    return answers


def static_dynamic(shared: int) -> tuple[int, int]:
    static = min(shared // 3, 49152)
    return static, shared - static


def ours(device: SmLimits, kernels: Sequence[Kernel]) -> NDArray[np.int32]:
    return np.array([row(evaluate(device, kernel)) for kernel in kernels], dtype=np.int32)


def evaluate(device: SmLimits, kernel: Kernel) -> Occupancy:
    threads, registers, shared, barriers, carve_out = kernel
    return occupancy(
        device,
        threads=threads,
        registers=registers,
        shared=shared,
        barriers=barriers,
        carve_out=carve_out,
    )


def row(o: Occupancy) -> list[int]:
    limits = (
        o.blocks_per_sm,
        o.by_warps,
        o.by_blocks,
        o.by_registers,
        o.by_shared,
        o.by_barriers,
    )
    return [INT_MAX if limit is None else limit for limit in limits]


def differing(oracle: ctypes.CDLL, device: SmLimits, kernels: Sequence[Kernel]) -> list[Kernel]:
    """The kernels for which a limit or the resident blocks differ from NVIDIA's."""
    wrong = (ours(device, kernels) != nvidia(oracle, device, kernels)).any(axis=1)
    return [kernel for kernel, off in zip(kernels, wrong, strict=True) if off]


def random_kernels(device: SmLimits, count: int, seed: int = 0) -> Iterator[Kernel]:
    """Random kernels: half anywhere in and beyond the legal range, half at limits."""
    draw = random.Random(f"{device.compute_capability}{seed or ''}")
    for _ in range(count):
        yield (
            draw.choice((draw.randint(1, 1100), draw.choice((32, 64, 96, 128, 256, 512, 1024)))),
            draw.choice((draw.randint(0, 260), draw.choice((0, 1, 8, 32, 64, 128, 168, 255, 256)))),
            draw.choice((draw.randint(0, 240_000), shared_edge(device, draw), 0)),
            draw.choice((0, 1, 1, 2, 3, 8, 16)),
            draw.choice((None, None, None, 0, 25, 50, 100, draw.randint(0, 100))),
        )


def shared_edge(device: SmLimits, draw: random.Random) -> int:
    """Shared memory with which a number of blocks just fits, or 1 byte off."""
    carve_outs = [1024 * size for size in ARCHITECTURES[device.compute_capability].carve_outs]
    sizes = [*carve_outs, device.shared_per_sm, device.shared_per_block, 1024]
    exact = draw.choice(sizes) // draw.randint(1, 8) - device.reserved_shared_per_block
    return max(0, draw.choice((exact, device.shared_per_block_optin)) + draw.choice((-1, 0, 1)))
