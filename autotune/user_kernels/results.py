"""The results expected of a user kernel, from a reference, and their comparison."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cuda.textures import Texture
from autotune.errors import UsageError

TIME_LIMIT_S = 20.0
"""Seconds that a configuration may take by default."""


@dataclass(frozen=True)
class Verification:
    """The comparison of a user kernel's results with the expected ones.

        autotune.tune_kernel(..., verify=autotune.Verification(rtol=1e-3))

    Attributes:
        rtol: relative tolerance of an element; by default 1e-2 in float16, 1e-4 in float32, 1e-9
            in float64, and 0 for whole numbers.
        atol: absolute tolerance, added to it; by default `rtol` times the mean absolute element.
        time_limit: seconds for one configuration, verification and all samples together; one that
            takes longer is not tried again.

    Raises:
        UsageError: for a tolerance that is not a number from 0 on, or a time limit of 0 seconds or
            less.
    """

    rtol: float | None = None
    atol: float | None = None
    time_limit: float = TIME_LIMIT_S

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            if value is not None and not 0 <= value < math.inf:
                raise UsageError(f"{name} is {value!r}; give a number of at least 0")
        if not self.time_limit > 0:
            raise UsageError(f"time_limit is {self.time_limit!r}; give more than 0 seconds")


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
    fields: Mapping[str, ExpectedArray] = field(default_factory=dict)
    """The expected fields of a structured array, which is compared by them."""


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
        member: the worst field of a structured array, such as `.at`.
    """

    wrong: int
    error: float
    allowed: float
    place: tuple[int, ...]
    actual: complex
    desired: complex
    difference: float
    square: float
    member: str = ""


def compare(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares arrays of one shape, in double precision."""
    if expected.fields:
        return _compare_fields(actual, expected)
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


def _compare_fields(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares structured arrays field by field."""
    parts = []
    for name, desired in expected.fields.items():
        part = compare(as_bytes(actual[name]), desired)
        parts.append(replace(part, member=f".{name}{part.member}"))
    worst = max(parts, key=lambda part: (part.wrong > 0, part.error / (part.allowed or math.inf)))
    return replace(
        worst,
        wrong=min(sum(part.wrong for part in parts), actual.size),
        difference=sum(part.difference for part in parts),
        square=sum(part.square for part in parts),
    )


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
    return _as_results(reference(*map(_copy, arguments)), arguments)


def _copy(argument: object) -> object:
    """A copy of an array, or of the array of a texture; other arguments as they are."""
    if isinstance(argument, Texture):
        argument = argument.array
    return argument.copy(order="K") if isinstance(argument, np.ndarray) else argument


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
    argument: Any,
    verify: Verification,
    source: str = "the reference",
) -> ExpectedArray:
    """The array that is expected at a position, checked, in the argument's order in memory;
    `source` says by whom."""
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
    if column_major(argument):
        values, argument = values.T, argument.T
    if names := argument.dtype.names:
        fields = {
            name: expected_array(place, values[name], argument[name], verify, source)
            for name in names
        }
        return ExpectedArray(np.ascontiguousarray(values), 0.0, 0.0, fields)
    if count := int(np.isnan(values).sum()):
        raise UsageError(
            f"{source} expects NaN in {count} elements of argument {place}: nothing can be "
            "verified against that; choose arguments whose result is a number"
        )
    share = RTOL.get(argument.dtype.name, 0.0) if verify.rtol is None else verify.rtol
    if (atol := verify.atol) is None:
        sizes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        atol = share * float(sizes.mean()) if sizes.size else 0.0
    return ExpectedArray(as_bytes(np.ascontiguousarray(values)), share, atol)


def column_major(array: Array) -> bool:
    """Whether an array lies in Fortran order and not in C order too."""
    return bool(array.flags.f_contiguous and not array.flags.c_contiguous)


def in_memory_order(array: Array) -> Array:
    """A view of an array whose last index varies fastest in memory."""
    ordered: Array = array.T if column_major(array) else array
    return ordered


def as_bytes(array: Array) -> Array:
    """An array of bool viewed as bytes, as a kernel may leave values other than 0 and 1."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Whether an array of that type can hold the values; floating-point types may round them."""
    if dtype.names:
        return values.dtype.names == dtype.names
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
    if array.dtype.names:
        changed: Array = array.copy(order="K")
        for name in array.dtype.names:
            changed[name] = different(array[name])
        return changed
    if array.dtype.kind in "fc":
        return np.full_like(array, np.nan)
    return ~array
