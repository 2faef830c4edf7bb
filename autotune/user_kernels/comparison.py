"""How far what a kernel left in an array is from what was expected there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 20
"""Elements that are compared at a time, so that no large arrays are made on the way."""


@dataclass(frozen=True, eq=False)
class ExpectedArray:
    """What an array has to hold: each element within `atol + rtol |value|` of its value.

    Infinities, and with both at 0 all numbers, have to be the same.
    """

    values: NDArray[Any]
    rtol: float
    atol: float


@dataclass(frozen=True)
class Comparison:
    """An array beside what was expected of it.

    Attributes:
        wrong: elements that are further off than allowed.
        error: largest absolute error; NaN where a result is.
        allowed: what is allowed where the error is the largest beside that.
        place: where that is.
        found: what is there.
        wanted: what was expected there.
        difference: sum of the squares of the errors.
        square: sum of the squares of what was expected; in both, of finite elements.
    """

    wrong: int
    error: float
    allowed: float
    place: tuple[int, ...]
    found: complex
    wanted: complex
    difference: float
    square: float


def compare(found: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares arrays of one shape, in double precision."""
    flat, wanted = found.reshape(-1), expected.values.reshape(-1)
    wrong, error, difference, square = 0, 0.0, 0.0, 0.0
    worst, at, limit = -1.0, 0, 0.0
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        errors, allowed, bad = _errors(flat[part], wanted[part], expected)
        wrong += int(bad.sum())
        error = max(error, float(errors.max()), key=lambda one: math.inf if one != one else one)
        ratios = np.where(bad, np.inf, errors / np.where(allowed > 0, allowed, 1.0))
        if ratios.max() > worst:
            at, worst = start + int(ratios.argmax()), float(ratios.max())
            limit = float(allowed[at - start])
        sizes = np.abs(wanted[part].astype(np.complex128))
        finite = np.isfinite(errors) & np.isfinite(sizes)
        difference += float(np.square(errors[finite]).sum())
        square += float(np.square(sizes[finite]).sum())
    place = tuple(int(one) for one in np.unravel_index(at, found.shape))
    ends = flat[at].item(), wanted[at].item()
    return Comparison(wrong, error, limit, place, *ends, difference, square)


def _errors(
    found: NDArray[Any], wanted: NDArray[Any], expected: ExpectedArray
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.bool_]]:
    """The absolute errors, what they may be, and which are more than that."""
    wide = np.complex128 if "c" in (found.dtype.kind, wanted.dtype.kind) else np.float64
    different = found != wanted
    with np.errstate(all="ignore"):
        errors = np.where(different, np.abs(found.astype(wide) - wanted.astype(wide)), 0.0)
        sizes = np.abs(wanted.astype(wide))
        # Nothing is near to an infinity.
        allowed = np.where(np.isfinite(sizes), expected.atol + expected.rtol * sizes, 0.0)
    return errors, allowed, different & ~((errors <= allowed) & (allowed > 0))
