"""The results expected of a user kernel, from a reference, and their comparison."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError

TIME_LIMIT_S = 20.0
"""Seconds that a configuration may take by default."""


Tolerance = float | Mapping[int, float]
"""A tolerance of all arrays, or of arguments by their positions."""

Check = Callable[[list[Any], list[Any]], object]
"""A function of the expected and of the actual arrays that says whether they agree."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a user kernel's results with the expected ones.

        autotune.tune_kernel(..., verify=autotune.Verification(rtol=1e-3))

    Arrays are compared on the GPU if it has the memory for copies. A `check`, and a reference
    `by_configuration`, run on the host, in this process: each trial copies its results there.

    Attributes:
        rtol: relative tolerance of an element, or a mapping from positions among the arguments to
            tolerances; by default 1e-2 in float16, 1e-4 in float32, 1e-9 in float64, and 0 for
            whole numbers.
        atol: absolute tolerance, added to it, likewise; by default `rtol` times the mean absolute
            element.
        time_limit: seconds for one configuration, verification and all samples together; one that
            takes longer is not tried again.
        check: replaces the tolerances: a function of two lists, the expected and the actual
            contents of each argument, with None in the place of all but outputs. It returns whether
            they agree, or raises an `AssertionError` as those of `numpy.testing` do.
        by_configuration: whether the reference is called with the parameters of the configuration
            before the arguments, and once for each.

    Raises:
        UsageError: for a tolerance that is not a number from 0 on, or a time limit of 0 seconds or
            less.
    """

    rtol: Tolerance | None = None
    atol: Tolerance | None = None
    time_limit: float = TIME_LIMIT_S
    check: Check | None = None
    by_configuration: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            for number in value.values() if isinstance(value, Mapping) else (value,):
                if number is not None and not 0 <= number < math.inf:
                    raise UsageError(f"{name} is {number!r}; give a number of at least 0")
        if not self.time_limit > 0:
            raise UsageError(f"time_limit is {self.time_limit!r}; give more than 0 seconds")

    def check_positions(self, arguments: Sequence[object]) -> None:
        """Raises a `UsageError` if a tolerance is given for an argument that is not an array."""
        arrays = [place for place, each in enumerate(arguments) if isinstance(each, np.ndarray)]
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            for place in value if isinstance(value, Mapping) else ():
                if place not in arrays:
                    raise UsageError(
                        f"{name} has a tolerance for argument {place!r}; the arrays are arguments "
                        f"{', '.join(map(str, arrays))}"
                    )


def _at(place: int, tolerance: Tolerance | None) -> float | None:
    """The tolerance of an argument."""
    return tolerance.get(place) if isinstance(tolerance, Mapping) else tolerance


DEFAULT_VERIFICATION = Verification()

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

    def allowed(self, place: int) -> float:
        """The tolerance of an element, counted along the array."""
        size = float(abs(self.values.reshape(-1)[place].item()))
        return self.atol + self.rtol * size if math.isfinite(size) else 0.0

    @cached_property
    def square(self) -> float:
        """The sum of the squares of the finite values."""
        flat, total = self.values.reshape(-1), 0.0
        for start in range(0, flat.size, CHUNK):
            part = flat[start : start + CHUNK]
            wide = part.astype(np.complex128 if part.dtype.kind == "c" else np.float64)
            square = float(np.vdot(wide, wide).real)
            if not math.isfinite(square):
                wide = wide[np.isfinite(wide)]
                square = float(np.vdot(wide, wide).real)
            total += square
        return total


@dataclass(frozen=True)
class Agreement:
    """The error of an array that is as expected.

    Attributes:
        error: largest absolute error; NaN if a result is NaN.
        allowed: tolerance of the element whose error is the largest multiple of its tolerance.
        difference: sum of the squares of the errors, over finite elements.
    """

    error: float
    allowed: float
    difference: float


@dataclass(frozen=True)
class Comparison(Agreement):
    """An array compared with the expected one. The worst element is the one whose error is the
    largest multiple of its tolerance.

    Attributes:
        wrong: number of elements beyond their tolerance.
        place: index of the worst element.
        actual: its value.
        desired: its expected value.
    """

    wrong: int
    place: tuple[int, ...]
    actual: complex
    desired: complex


def compare(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares arrays of one shape, in double precision."""
    flat, desired = actual.reshape(-1), expected.values.reshape(-1)
    wrong, error, difference = 0, 0.0, 0.0
    worst, at = -1.0, 0
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        if np.array_equal(flat[part], desired[part]):
            continue  # most candidates agree to the last bit
        errors, allowed, bad = _errors(flat[part], desired[part], expected)
        wrong += int(bad.sum())
        error = max(error, float(errors.max()), key=_nan_last)
        ratios = np.where(bad, np.inf, errors / np.where(allowed > 0, allowed, 1.0))
        if ratios.max() > worst:
            at, worst = start + int(ratios.argmax()), float(ratios.max())
        finite = errors[np.isfinite(errors) & np.isfinite(desired[part])]
        difference += float(finite @ finite)
    place = tuple(int(index) for index in np.unravel_index(at, actual.shape))
    values = flat[at].item(), desired[at].item()
    return Comparison(error, expected.allowed(at), difference, wrong, place, *values)


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


Array = NDArray[Any]

Reference = Callable[..., Sequence[Any]] | Sequence[Any]
"""Expected results: an array for each argument, or None for an argument that the kernel must not
change; or a function that returns them, called with the arguments: their arrays are copies."""

# Tolerance relative to the size of an element: a multiple of the rounding error that a sum of a few
# thousand terms has when their order changes.
RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9, "complex64": 1e-4, "complex128": 1e-9}


def run_reference(reference: Reference, arguments: Sequence[object]) -> list[Any]:
    """The results of the reference, run on copies of the arguments."""
    if not callable(reference):
        return _as_results(reference, arguments)
    copies = [
        argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments
    ]
    return _as_results(reference(*copies), arguments)


def _as_results(results: object, arguments: Sequence[object]) -> list[Any]:
    if not isinstance(results, list | tuple) or len(results) != len(arguments):
        count = f"{len(results)}" if isinstance(results, list | tuple) else type(results).__name__
        raise UsageError(
            f"the reference returned {count} for {len(arguments)} arguments; return a list with "
            "the expected array of each output, and None for every other argument"
        )
    return list(results)


def expected_array(
    place: int,
    result: object,
    argument: object,
    verify: Verification,
    source: str = "the reference",
) -> ExpectedArray:
    """The array that is expected at a position, checked; `source` says by whom."""
    values = np.array(result)
    if not isinstance(argument, np.ndarray) or values.shape != argument.shape:
        shape = f"shape {argument.shape}" if isinstance(argument, np.ndarray) else "a number"
        raise UsageError(
            f"{source} expects shape {values.shape} in argument {place}, which has {shape}; "
            "return None for arguments that are not outputs, and arrays of the arguments' shapes"
        )
    if not _holds(argument.dtype, values):
        raise UsageError(
            f"{source} expects {values.dtype} in argument {place}, an array of "
            f"{argument.dtype}, which cannot hold it; return that type"
        )
    if verify.check is None and (count := int(np.isnan(values).sum())):
        raise UsageError(
            f"{source} expects NaN in {count} elements of argument {place}: nothing can be "
            "verified against that; choose arguments whose result is a number"
        )
    rtol, atol = _at(place, verify.rtol), _at(place, verify.atol)
    if rtol is None:
        rtol = RTOL.get(argument.dtype.name, 0.0)
    if atol is None:
        atol = rtol * mean_size(values) if rtol else 0.0
    return ExpectedArray(as_bytes(np.ascontiguousarray(values)), rtol, atol)


def mean_size(values: Array) -> float:
    """The mean absolute value of the finite elements."""
    sizes = np.abs(values)
    finite = np.isfinite(sizes)
    return float(sizes.mean(dtype=np.float64, where=finite)) if finite.any() else 0.0


def as_bytes(array: Array) -> Array:
    """An array of bool viewed as bytes, as a kernel may leave values other than 0 and 1."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Whether an array of that type can hold the values; floating-point types may round them."""
    if values.dtype.kind not in "iubfc":
        return False
    if dtype.kind in "fc":
        return np.can_cast(values.dtype, dtype, "same_kind")
    return values.dtype.kind in "iub" and bool((values.astype(dtype) == values).all())


def reads(
    reference: Callable[..., Sequence[Any]],
    arguments: Sequence[object],
    place: int,
    results: Sequence[Any],
) -> bool:
    """Whether the contents of the array at `place` make a difference to the reference."""
    changed = list(arguments)
    array = changed[place]
    assert isinstance(array, np.ndarray)
    changed[place] = different(array)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = run_reference(reference, changed)
    except Exception:  # it read the changed contents and failed on them
        return True
    pairs = zip(results, again, strict=True)
    return any(not np.array_equal(first, second) for first, second in pairs if first is not None)


def different(array: Array) -> Array:
    """An array of that type and shape that differs from `array` in every element."""
    if array.dtype.kind in "fc":
        return np.full_like(array, np.nan)
    return ~array
