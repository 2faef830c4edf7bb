"""Least squares for a model that is not linear, as `fit_cost.py` needs them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ROUNDS, LEAST_GAIN = 40, 1e-4
DAMPING, MOST_DAMPING, FACTOR = 1.0, 1e9, 8.0
LARGE = 2.0


def minimum(linear: Callable[[Floats], tuple[Floats, Floats]], values: Floats) -> Floats:
    """Where the squares of the residuals have the least sum, by Levenberg and Marquardt's method.

    Args:
        linear: gives the residuals at some values, and their slopes (residuals x values).
        values: where to begin.
    """
    damping, (residuals, slopes) = DAMPING, linear(values)
    for _ in range(ROUNDS):
        normal, gradient = slopes.T @ slopes, slopes.T @ residuals
        tried = values - np.linalg.solve(normal + damping * np.eye(len(values)), gradient)
        others, steeper = linear(tried)
        before, gain = residuals @ residuals, residuals @ residuals - others @ others
        if gain >= 0:
            values, residuals, slopes, damping = tried, others, steeper, damping / FACTOR
            if gain < LEAST_GAIN * before:
                break
        elif damping > MOST_DAMPING:
            break
        else:
            damping *= FACTOR
    return values


def soft(sizes: Floats) -> tuple[Floats, Floats]:
    """The root of the pseudo-Huber loss and its slope: small errors count with their square, those
    over `LARGE` more and more with their size."""
    ratio = np.square(sizes / LARGE)
    long = np.sqrt(1 + ratio)
    root = np.sqrt((1 + long) / 2)
    return np.asarray(sizes / root), np.asarray(1 / root - ratio / (4 * root**3 * long))
