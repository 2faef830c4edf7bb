"""Errors of results as `cuda_src/verify.cu` computes them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.measure.oracle import gates
from autotune.problem import Problem


def error_unit(sums: NDArray[np.float64], tolerance: float) -> NDArray[np.float64]:
    """The unit of the errors of SwiGLU, with which they grow: 1 + |gate| + |up| + `tolerance`, of
    the sums of the product."""
    gate, up = gates(sums)
    unit: NDArray[np.float64] = 1 + np.abs(gate) + np.abs(up) + tolerance
    return unit


def largest_error(
    problem: Problem,
    result: NDArray[Any],
    wanted: NDArray[np.float64],
    unit: NDArray[np.float64] | float = 1.0,
) -> float:
    """The largest error of an element as `cuda_src/verify.cu` computes it.

    That is |result - wanted|, less what rounding `wanted` to C's type may change, in units of
    `unit`. At least 0; NaN if an element of `result` is NaN.
    """
    difference: NDArray[np.float64] = np.abs(result.astype(np.float64) - wanted)
    beyond = (difference - problem.output_element.roundoff * np.abs(wanted)) / unit
    return float(np.max(beyond, initial=0.0))
