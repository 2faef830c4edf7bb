"""The vendor library's time on a problem where it was not timed, from its times on others.

Its time over the roofline's is a Gaussian process of sizes, alignments, precision and layout. On
131 recorded problems, each left out in turn, half of the predictions are within 15 % of the
measured time. A configuration's time is taken to be one standard deviation longer than expected:
then the library multiplies where it should in 26 cases and where our kernel would have been faster
in 28, which makes the products 1.2 % faster in the mean, and only 8 % of them slower than the
library by more than 2 %, instead of 25 %.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from autotune.candidates.gaussian_process import Covariance, GaussianProcess
from autotune.candidates.problem_columns import problem_columns
from autotune.device import Device, same_model
from autotune.lookup.neighbours import Neighbour
from autotune.occupancy.roofline import least_hot_seconds, least_seconds
from autotune.problem import Problem
from autotune.runners.base import Objective

OVERHEAD_US = 3.0
"""Microseconds beside the roofline's in the time that predictions are multiples of.

It is no lower bound: cuBLAS's shortest recorded products, 128x128x128 in 16 bits, take 2.21 us on
an H100 and 2.24 us on an H200. Predictions hardly depend on it: with 1, 2 or 3 the median error
over 209 problems of an H200, each left out in turn, is 13.9, 12.8 and 13.0 %.
"""
LENGTH, SIGNAL, NOISE = 1.5, 0.3, 0.005
"""In the units of `problem_columns`, and variances of the log."""
LARGEST_DEVIATION = 0.4
"""Standard deviation of the log above which the records say nothing of a problem."""
CAUTION = 1.0
"""Standard deviations by which a configuration is taken to be slower than expected."""


def vendor_is_expected(
    problem: Problem,
    device: Device,
    records: Sequence[Neighbour],
    time_us: float,
    deviation: float,
    objective: Objective = "hot",
) -> bool:
    """Whether the vendor's library is expected to be faster than a configuration. It does not run
    SwiGLU.

    Args:
        problem: the problem, which has no record.
        device: the device.
        records: whatever is recorded.
        time_us: expected microseconds of the configuration.
        deviation: standard deviation of their log.
        objective: the time that decides.
    """
    if problem.gated:
        return False
    theirs = vendor_time_us(problem, device, records, objective)
    return theirs is not None and theirs < time_us * math.exp(CAUTION * deviation)


def vendor_time_us(
    problem: Problem, device: Device, records: Sequence[Neighbour], objective: Objective = "hot"
) -> float | None:
    """Predicted microseconds of the vendor's library; None if the records do not tell."""
    here = {card: same_model(card, device) for card in {record.device for record in records}}
    times = {
        record.problem: estimate.time_us
        for record in records
        if record.evidence == "measured" and record.baseline and here[record.device]
        if (estimate := record.baseline.estimate(objective)) is not None
    }
    if not times:
        return None
    points = np.array([problem_columns(timed) for timed in times])
    logs = np.log([time / _scale(timed, device, objective) for timed, time in times.items()])
    covariance = Covariance(np.full(points.shape[1], LENGTH), SIGNAL, NOISE, jitter=0.0)
    process = GaussianProcess(covariance, points, logs - logs.mean())
    means, deviations = process.predict(np.array([problem_columns(problem)]))
    if deviations[0] > LARGEST_DEVIATION:
        return None
    scale = _scale(problem, device, objective)
    return float(scale * math.exp(logs.mean() + means[0]))


def _scale(problem: Problem, device: Device, objective: Objective) -> float:
    bound = least_seconds if objective == "cold" else least_hot_seconds
    return 1e6 * bound(problem, device) + OVERHEAD_US
