"""Arithmetic intensity and the roofline bounds that follow from it.

The formulas are those of Kirk and Hwu, *Programming Massively Parallel Processors* (PMPP), in the
chapter on tiled matrix multiplication; the roofline is Williams, Waterman and Patterson's (2009).
"""

from __future__ import annotations

from autotune.device import Device
from autotune.problem import Problem
from autotune.problem.words import DtypeLike


def intensity(bm: int = 1, bn: int = 1, *, element_bytes: int = 4) -> float:
    """FLOP per byte of device memory of a kernel whose blocks compute `bm` x `bn` elements.

    For each step along K a block loads `bm` elements of A and `bn` of B and performs
    `2 bm bn` operations. In fp32 a naive kernel (1 x 1) has 0.25 FLOP/B and square tiles have
    TILE_WIDTH / 4 (PMPP); register tiling changes the block's size, not the formula.

    PMPP's early editions count one memory access as one operation instead. In fp32 that gives
    the same bounds, since the two loads of a step feed one multiplication and one addition.
    """
    return 2 * bm * bn / (element_bytes * (bm + bn))


def bandwidth_bound(bandwidth: float, flop_per_byte: float) -> float:
    """FLOP/s that a bandwidth in bytes per second can feed (PMPP)."""
    return bandwidth * flop_per_byte


def attainable(device: Device, flop_per_byte: float, compute: DtypeLike = "f32") -> float:
    """The roofline in FLOP/s: the bandwidth bound, but no more than the precision's peak."""
    return min(device.peak(compute), bandwidth_bound(device.memory_bandwidth, flop_per_byte))


def least_seconds(problem: Problem, device: Device) -> float:
    """Lower bound on any kernel's time: 2 M N K at the peak, or each matrix moved once.

    It holds for matrices that come from device memory; see `least_hot_seconds` for others.
    """
    return max(
        problem.flops / device.peak(problem.compute), problem.bytes / device.memory_bandwidth
    )


def least_hot_seconds(problem: Problem, device: Device) -> float:
    """`least_seconds` of runs one after another: what L2 can hold is not moved again."""
    moved = max(0, problem.bytes - device.l2_bytes)
    return max(problem.flops / device.peak(problem.compute), moved / device.memory_bandwidth)
