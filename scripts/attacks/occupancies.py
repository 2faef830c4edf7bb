"""Occupancies of random kernels against NVIDIA's `cuda_occupancy.h`."""

from __future__ import annotations

from pathlib import Path

from support.nvidia_occupancy import DEVICES, compiled, differing, random_kernels

from attacks.outcome import Outcome
from autotune.occupancy import ARCHITECTURES


def run(count: int, seed: int, folder: Path) -> Outcome:
    """Compares resident blocks and all limits of `count` kernels, spread over all capabilities."""
    oracle = compiled(folder)
    share, extra = divmod(count, len(ARCHITECTURES))
    broken: list[str] = []
    for place, capability in enumerate(ARCHITECTURES):
        device = DEVICES[capability]
        kernels = [*random_kernels(device, share + (place < extra), seed + 1)]
        wrong = differing(oracle, device, kernels) if kernels else []
        major, minor = capability
        broken += [f"compute capability {major}.{minor}: {kernel}" for kernel in wrong]
    counts = {"cases": count, "wrong": len(broken)}
    return Outcome(counts, broken=tuple(broken))
