"""The vendor library's time on a problem where it was not timed, and whether it multiplies there.

Its expected time (`model_error.expected_ratio`) follows from its times on other problems. A
configuration's time is taken to be one standard deviation longer than expected: on 286 untuned
products of an H100 and an H200, `docs/results/*/versions.json` included, 14 are then slower than
the library's by more than 2 %, at 0.75 of its speed at worst, instead of 67 and 0.33 where our
kernels multiply all of them; the mean over the library is 1.20 instead of 1.23.

On an architecture where the library was never timed, its expected time is that of the other
architectures, at the same distance from the roofline. Nothing tells how far off that is, nor how
far off the kernel's time: the process's prior deviation counts for both. A kernel then multiplies
only where it is expected to take at most 0.45 of the library's time, as for products that cuBLAS is
known to be bad at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from autotune.device import Device, same_model
from autotune.lookup.answer import Answer
from autotune.lookup.digest import RecordDigest
from autotune.lookup.neighbours import TEACHERS, Pool, elsewhere, of_architecture
from autotune.measure.objective import HOT, Objective
from autotune.model.model_error import VENDOR_VARIANCES, expected_ratio
from autotune.problem import Problem
from autotune.records import Records

OVERHEAD_US = 3.0
"""Microseconds beside the roofline's in the time that predictions are multiples of.

It is not a lower bound: cuBLAS's shortest recorded products, 128x128x128 in 16 bits, take 2.21 us
on an H100 and 2.24 us on an H200. Predictions hardly depend on it: with 1, 2 or 3 the median error
over 209 problems of an H200, each left out in turn, is 13.9, 12.8 and 13.0 %.
"""

CAUTION = 1.0
"""Standard deviations by which a configuration is taken to be slower than expected."""

_OWN_TENSOR_CORES = {10: "Blackwell (tcgen05)", 11: "Blackwell (tcgen05)"}
"""Architectures, by their major compute capability, whose tensor cores have instructions that no
family uses."""

FASTER = "; cuBLAS is {} to be faster, and multiplies arrays of PyTorch and CuPy"


def beside_vendor(
    answer: Answer, ranked: Sequence[RecordDigest], records: Records, deviation: float
) -> Answer:
    """A guessed answer with the expected time of the vendor's library, which multiplies where it is
    expected to be faster. It does not run SwiGLU.

    Args:
        answer: a configuration for a problem that is not recorded, with its expected time.
        ranked: what is recorded of the architecture, the nearest problems first.
        records: all records.
        deviation: standard deviation of the log of the expected time.
    """
    problem, device, objective = answer.problem, answer.device, answer.objective
    time_us = answer.time_us
    if problem.gated or problem.precision.vendor is None or time_us is None:
        return answer
    timed = any(_vendor_us(row, objective) is not None for row in ranked)
    if not timed:
        ranked = _nearest(problem, device, of_architecture(device, Records.shipped_only()))
        timed = any(_vendor_us(row, objective) is not None for row in ranked)
    if not timed:
        ranked = _nearest(problem, device, elsewhere(device, records))
    vendor_us = vendor_time_us(problem, device, ranked, objective)
    answer = replace(answer, vendor_us=vendor_us)
    spread = deviation if timed else _untimed_deviation(problem, device, deviation)
    cautious_us = time_us * math.exp(CAUTION * spread)
    if answer.vendor or (vendor_us is not None and vendor_us >= cautious_us):
        return answer
    why = FASTER.format("expected" if timed else "taken")
    reason = "" if timed else f": {_untimed(problem, device)}"
    return replace(answer, vendor=True, note=f"{answer.note}{why}{reason}")


def vendor_time_us(
    problem: Problem, device: Device, records: Sequence[RecordDigest], objective: Objective = HOT
) -> float | None:
    """Predicted microseconds of the vendor's library; None if it is timed nowhere.

    Those of the device's model count alone if there are any: of its distance from the roofline they
    tell more than those of other cards.
    """
    timed = [(row, us) for row in records if (us := _vendor_us(row, objective)) is not None]
    cards = {id(row.device): row.device for row, _ in timed}  # hashing a device takes longer
    own = {place for place, card in cards.items() if same_model(card, device)}
    nearest = [pair for pair in timed if id(pair[0].device) in own] or timed
    if not nearest:
        return None
    ratios = {row.problem: us / _scale_of(row, objective) for row, us in nearest[:TEACHERS]}
    return _scale(problem, device, objective) * expected_ratio(problem, ratios)


def _nearest(problem: Problem, device: Device, pool: Pool) -> list[RecordDigest]:
    return [row for _, row in pool.nearest(problem, device, TEACHERS)]


def _vendor_us(row: RecordDigest, objective: Objective) -> float | None:
    """The measured microseconds of the vendor's library; None if it was not timed."""
    if row.evidence != "measured" or row.baseline is None:
        return None
    estimate = objective.estimate(row.baseline)
    return None if estimate is None else estimate.time_us


@lru_cache(maxsize=1024)
def _scale_of(row: RecordDigest, objective: Objective) -> float:
    return _scale(row.problem, row.device, objective)


def _scale(problem: Problem, device: Device, objective: Objective) -> float:
    """Microseconds that times are multiples of: the roofline's in the library's own precision."""
    asked = replace(problem, compute=problem.precision.vendor or problem.compute)
    return 1e6 * objective.least_seconds(asked, device) + OVERHEAD_US


def _untimed_deviation(problem: Problem, device: Device, deviation: float) -> float:
    """Standard deviation of the log of a kernel's time over the library's where neither was timed;
    infinite where the library alone uses the tensor cores."""
    if _unused_tensor_cores(problem, device):
        return math.inf
    return math.hypot(deviation, math.sqrt(2 * VENDOR_VARIANCES[0]))


def _untimed(problem: Problem, device: Device) -> str:
    """Why the library is taken to be faster on an architecture where it was not timed."""
    major, minor = device.compute_capability
    reason = f"it was never timed on compute capability {major}.{minor}"
    if unused := _unused_tensor_cores(problem, device):
        reason += f", and no kernel here uses the tensor cores of {unused}"
    return reason


def _unused_tensor_cores(problem: Problem, device: Device) -> str:
    """The architecture, if the problem is one for tensor cores that no kernel here uses."""
    major, _ = device.compute_capability
    return _OWN_TENSOR_CORES.get(major, "") if problem.precision.on_tensor_cores else ""
