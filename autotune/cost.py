"""What a candidate should take, predicted from the device alone.

The model is for ranking: it counts the issue slots of the inner loop, the bytes asked of L2 and
of device memory, how the blocks fall on the SMs in waves, and the fixed costs of launches. Its
constants are coarse and the same for every device; a measurement always overrules it.
"""

from __future__ import annotations

from collections.abc import Iterable

from autotune import families
from autotune.config import Config
from autotune.device import Device
from autotune.families.base import Work
from autotune.plan import Resources
from autotune.problem import Problem

SCHEDULERS = 4
# Set so that the median error is nought on the recorded H100 (`data/recordings/h100`). The share of
# the issue slots that a scheduler fills when it has enough warps, the rest being register-bank
# conflicts and barriers; the share that one warp alone fills, which besides waits for shared memory
# at each step of K.
ISSUE_EFFICIENCY = 0.80
WARP_EFFICIENCY = 0.49
STALL_CYCLES = 11.0
# From a block's start to its first product: launch, first load from device memory, barrier.
START_CYCLES = 1750.0
LOAD_CYCLES = 1100.0
# Assumed, not fitted: L2 serves twice the bytes of device memory.
L2_PER_DRAM = 2.0
LAUNCH_SECONDS = 2.0e-6
REDUCE_SECONDS = 2.0e-6


def predict(
    config: Config, problem: Problem, device: Device, resources: Resources | None = None
) -> float:
    """Predicted time of one run in microseconds; infinite if no block fits an SM.

    Args:
        config: a legal configuration of `problem` on `device`.
        problem: what is multiplied.
        device: where.
        resources: of the compiled kernel; by default the family's estimate.
    """
    family = families.find(config.family)
    work = family.work(config, problem)
    taken = resources or family.estimate(config)
    resident = taken.occupancy(device).blocks_per_sm
    if resident == 0:
        return float("inf")
    seconds = _compute_seconds(work, device, resident, taken.threads // device.warp_size)
    memory = problem.bytes / device.memory_bandwidth
    traffic = work.blocks * work.steps * work.bytes / (L2_PER_DRAM * device.memory_bandwidth)
    reduction = 0.0
    if work.partials:
        reduction = REDUCE_SECONDS + 2 * work.partials / (L2_PER_DRAM * device.memory_bandwidth)
    return 1e6 * (LAUNCH_SECONDS + max(seconds, memory, traffic) + reduction)


def rank(configs: Iterable[Config], problem: Problem, device: Device) -> list[tuple[float, Config]]:
    """The configurations with their predicted microseconds, fastest first.

    Equal predictions are in the order of their parameters, so that the ranking is the same
    everywhere.
    """
    return sorted((predict(config, problem, device), config) for config in configs)


def _compute_seconds(work: Work, device: Device, resident: int, warps: int) -> float:
    """Blocks fill the SMs `resident` at a time; the last wave is as deep as what is left."""
    full, rest = divmod(work.blocks, device.sms * resident)
    cycles = full * _wave_cycles(work, resident, warps)
    if rest:
        cycles += _wave_cycles(work, -(-rest // device.sms), warps)
    return cycles / device.sm_clock


def _wave_cycles(work: Work, blocks: int, warps: int) -> float:
    """Cycles that `blocks` resident blocks of an SM take from start to end."""
    issue = blocks * work.issue / SCHEDULERS / ISSUE_EFFICIENCY
    alone = work.issue / max(1, warps) / WARP_EFFICIENCY + STALL_CYCLES
    arrival = LOAD_CYCLES / max(1, work.latency_steps)
    return START_CYCLES + work.steps * max(issue, alone, arrival)
