"""Compares the array that a kernel left with the array expected of it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 20
"""Elements compared at a time, which bounds the memory of the intermediate arrays."""


@dataclass(frozen=True, eq=False)
class ExpectedArray:
    """The array a kernel has to leave: each element within `atol + rtol |value|` of its value.

    Infinities have to be equal, and so do all elements if `rtol` and `atol` are 0.
    """

    values: NDArray[Any]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Comparison:
    """An array compared with the expected one. The worst element is the one whose error is the
    largest multiple of its tolerance.

    Attributes:
        wrong: number of elements beyond their tolerance.
        error: largest absolute error; NaN if a result is NaN.
        allowed: tolerance of the worst element.
        place: index of the worst element.
        actual: its value.
        desired: its expected value.
        difference: sum of the squares of the errors, over finite elements.
        square: sum of the squares of the expected values, over the same elements.
    """

    wrong: int
    error: float
    allowed: float
    place: tuple[int, ...]
    actual: complex
    desired: complex
    difference: float
    square: float


def compare(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares arrays of one shape, in double precision."""
    flat, desired = actual.reshape(-1), expected.values.reshape(-1)
    wrong, error, difference, square = 0, 0.0, 0.0, 0.0
    worst, at, limit = -1.0, 0, 0.0
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        errors, allowed, bad = _errors(flat[part], desired[part], expected)
        wrong += int(bad.sum())
        error = max(error, float(errors.max()), key=_nan_last)
        ratios = np.where(bad, np.inf, errors / np.where(allowed > 0, allowed, 1.0))
        if ratios.max() > worst:
            at, worst = start + int(ratios.argmax()), float(ratios.max())
            limit = float(allowed[at - start])
        sizes = np.abs(desired[part].astype(np.complex128))
        finite = np.isfinite(errors) & np.isfinite(sizes)
        difference += float(np.square(errors[finite]).sum())
        square += float(np.square(sizes[finite]).sum())
    place = tuple(int(index) for index in np.unravel_index(at, actual.shape))
    values = flat[at].item(), desired[at].item()
    return Comparison(wrong, error, limit, place, *values, difference, square)


def _nan_last(error: float) -> float:
    """The key that sorts NaN behind all numbers."""
    return math.inf if math.isnan(error) else error


def _errors(
    actual: NDArray[Any], desired: NDArray[Any], expected: ExpectedArray
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The absolute errors, their tolerances, and which errors exceed them."""
    wide = np.complex128 if "c" in (actual.dtype.kind, desired.dtype.kind) else np.float64
    different = actual != desired
    with np.errstate(all="ignore"):
        errors = np.where(different, np.abs(actual.astype(wide) - desired.astype(wide)), 0.0)
        sizes = np.abs(desired.astype(wide))
        # Only an infinity equals an infinity: no tolerance there.
        allowed = np.where(np.isfinite(sizes), expected.atol + expected.rtol * sizes, 0.0)
    return errors, allowed, different & ~((errors <= allowed) & (allowed > 0))
