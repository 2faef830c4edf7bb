"""The results that a reference expects of a kernel, checked."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.user_kernels.comparison import ExpectedArray

Array = NDArray[Any]
Reference = Callable[..., Sequence[Any]] | Sequence[Any]
"""For each argument the expected array, or None for an argument that the kernel must not change; or
a function that returns them, called with the arguments: their arrays are copies."""

# Tolerance relative to the size of an element: a multiple of the rounding error that a sum of a few
# thousand terms has when their order changes.
RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9, "complex64": 1e-4, "complex128": 1e-9}


def check_tolerances(rtol: float | None, atol: float | None) -> None:
    """Refuses tolerances that are no numbers from 0 on."""
    for keyword, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"{keyword} is {value!r}; give a number of at least 0")


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
    rtol: float | None,
    atol: float | None,
    source: str = "the reference",
) -> ExpectedArray:
    """The array that is expected at a position, checked; `source` says by whom."""
    values = np.array(result)
    if not isinstance(argument, np.ndarray) or values.shape != argument.shape:
        shape = f"shape {argument.shape}" if isinstance(argument, np.ndarray) else "a number"
        raise UsageError(
            f"{source} expects shape {values.shape} in argument {place}, which has {shape}; "
            "return None for what is no output, and arrays of the arguments' shapes"
        )
    if not _holds(argument.dtype, values):
        raise UsageError(
            f"{source} expects {values.dtype} in argument {place}, an array of "
            f"{argument.dtype}, which cannot hold it; return that type"
        )
    if count := int(np.isnan(values).sum()):
        raise UsageError(
            f"{source} expects NaN in {count} elements of argument {place}: nothing can be "
            "verified against that; choose arguments whose result is a number"
        )
    share = RTOL.get(argument.dtype.name, 0.0) if rtol is None else rtol
    if atol is None:
        sizes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        atol = share * float(sizes.mean()) if sizes.size else 0.0
    return ExpectedArray(as_bytes(np.ascontiguousarray(values)), share, atol)


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
