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
    time_limit: float = 20.0
    check: Check | None = None
    by_configuration: bool = False

    def __post_init__(self) -> None:
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            for number in value.values() if isinstance(value, Mapping) else (value,):
                if number is not None and not 0 <= number < math.inf:
                    raise UsageError(f"{name} is {number!r}; give a number of at least 0")
        if not self.time_limit > 0:
            raise UsageError(f"time_limit is {self.time_limit!r}; give more than 0 seconds")

    def require(self, arguments: Sequence[object], reference: object) -> None:
        """Refuses what does not go together with the arguments and the reference.

        Raises:
            UsageError: for a tolerance of an argument that is not an array, or `by_configuration`
                without a function.
        """
        if self.by_configuration and not callable(reference):
            raise UsageError(
                "by_configuration needs a reference that is a function of the parameters and the "
                "arguments"
            )
        arrays = [place for place, each in enumerate(arguments) if isinstance(each, np.ndarray)]
        for name, value in (("rtol", self.rtol), ("atol", self.atol)):
            for place in value if isinstance(value, Mapping) else ():
                if place not in arrays:
                    raise UsageError(
                        f"{name} has a tolerance for argument {place!r}; the arrays are arguments "
                        f"{', '.join(map(str, arrays))}"
                    )


def _at(place: int, tolerance: Tolerance | None) -> float | None:
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
    fields: Mapping[str, ExpectedArray] = field(default_factory=dict)
    """The expected fields of a structured array, which is compared by them."""

    def allowed(self, place: int) -> float:
        """The tolerance of an element, counted along the array."""
        size = float(abs(self.values.reshape(-1)[place].item()))
        return self.atol + self.rtol * size if math.isfinite(size) else 0.0


@dataclass(frozen=True)
class Agreement:
    """The error of an array that is as expected.

    Attributes:
        error: largest absolute error; NaN if a result is NaN.
        allowed: tolerance of the element whose error is the largest multiple of its tolerance.
    """

    error: float
    allowed: float

    @property
    def share(self) -> float:
        """The error as a share of what is allowed; 0 where nothing is."""
        return self.error / (self.allowed or math.inf)


@dataclass(frozen=True)
class Comparison(Agreement):
    """An array compared with the expected one. The worst element is the one whose error is the
    largest multiple of its tolerance.

    Attributes:
        wrong: number of elements beyond their tolerance.
        place: index of the worst element.
        actual: its value.
        desired: its expected value.
        member: the worst field of a structured array, such as `.at`.
    """

    wrong: int
    place: tuple[int, ...]
    actual: complex
    desired: complex
    member: str = ""


def compare(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    """Compares arrays of one shape, in double precision."""
    if expected.fields:
        return _compare_fields(actual, expected)
    flat, desired = actual.reshape(-1), expected.values.reshape(-1)
    wrong, error = 0, 0.0
    worst, at = -1.0, 0
    for start in range(0, flat.size, CHUNK):
        part = slice(start, start + CHUNK)
        if np.array_equal(flat[part], desired[part]):
            continue  # most candidates agree to the last bit
        errors, allowed, bad = _errors(flat[part], desired[part], expected)
        wrong += int(bad.sum())
        error = float(np.maximum(error, errors.max()))  # NaN if either is
        ratios = np.where(bad, np.inf, errors / np.where(allowed > 0, allowed, 1.0))
        if ratios.max() > worst:
            at, worst = start + int(ratios.argmax()), float(ratios.max())
    place = tuple(int(index) for index in np.unravel_index(at, actual.shape))
    values = flat[at].item(), desired[at].item()
    return Comparison(error, expected.allowed(at), wrong, place, *values)


def _compare_fields(actual: NDArray[Any], expected: ExpectedArray) -> Comparison:
    parts = []
    for name, desired in expected.fields.items():
        part = compare(as_bytes(actual[name]), desired)
        parts.append(replace(part, member=f".{name}{part.member}"))
    worst = max(parts, key=lambda part: (part.wrong > 0, part.share))
    return replace(worst, wrong=min(sum(part.wrong for part in parts), actual.size))


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
    results: object = reference
    if callable(reference):
        results = reference(*map(_copy, arguments))
    if not isinstance(results, list | tuple) or len(results) != len(arguments):
        count = f"{len(results)}" if isinstance(results, list | tuple) else type(results).__name__
        raise UsageError(
            f"the reference returned {count} for {len(arguments)} arguments; return a list with "
            "the expected array of each output, and None for every other argument"
        )
    return list(results)


def _copy(argument: object) -> object:
    """A copy of an array, or of the array of a texture; other arguments as they are."""
    if isinstance(argument, Texture):
        argument = argument.array
    return argument.copy(order="K") if isinstance(argument, np.ndarray) else argument


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
    if verify.check is None and (count := int(np.isnan(values).sum())):
        raise UsageError(
            f"{source} expects NaN in {count} elements of argument {place}: nothing can be "
            "verified against that; choose arguments whose result is a number"
        )
    rtol, atol = _at(place, verify.rtol), _at(place, verify.atol)
    if rtol is None:
        rtol = RTOL.get(argument.dtype.name, 0.0)
    if atol is None:
        sizes = np.abs(values)
        finite = np.isfinite(sizes)
        mean = float(sizes.mean(dtype=np.float64, where=finite)) if rtol and finite.any() else 0.0
        atol = rtol * mean
    return ExpectedArray(as_bytes(np.ascontiguousarray(values)), rtol, atol)


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


def results_of(
    reference: Reference, arguments: Sequence[object]
) -> tuple[list[Any], frozenset[int]]:
    """The results of the reference, and the outputs whose contents make no difference to it.

    An array of zeros is mostly an output. The first run finds NaN in their place: if its results
    have none, it tells both. Otherwise the reference runs on the arguments, and again with other
    contents in the outputs.
    """
    if not callable(reference):
        return run_reference(reference, arguments), frozenset()
    blank = frozenset(
        place
        for place, each in enumerate(arguments)
        if isinstance(each, np.ndarray) and each.dtype.kind in "fc" and not each.any()
    )
    filled: Sequence[object] = _changed(arguments, blank)
    results = _quiet_results(reference, filled) if blank else None
    if results is None or not blank <= _outputs(results) or _has_nan(results):
        results, filled, blank = run_reference(reference, arguments), arguments, frozenset()
    return results, blank | _unread(reference, filled, results, _outputs(results) - blank)


def _unread(
    reference: Callable[..., Sequence[Any]],
    arguments: Sequence[object],
    results: Sequence[Any],
    outputs: frozenset[int],
) -> frozenset[int]:
    """The outputs whose contents make no difference: all of them together, or each alone."""
    if not outputs:
        return outputs
    again = _quiet_results(reference, _changed(arguments, outputs))
    if again is not None and all(
        np.array_equal(first, second)
        for first, second in zip(results, again, strict=True)
        if first is not None
    ):
        return outputs
    if len(outputs) == 1:
        return frozenset()
    alone = (_unread(reference, arguments, results, frozenset([place])) for place in outputs)
    return frozenset[int]().union(*alone)


def _changed(arguments: Sequence[object], places: frozenset[int]) -> list[object]:
    return [
        different(argument) if place in places and isinstance(argument, np.ndarray) else argument
        for place, argument in enumerate(arguments)
    ]


def _quiet_results(
    reference: Callable[..., Sequence[Any]], arguments: Sequence[object]
) -> list[Any] | None:
    """The results on changed arguments, without warnings; None if the reference fails on them."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run_reference(reference, arguments)
    except Exception:
        return None


def _outputs(results: Sequence[Any]) -> frozenset[int]:
    return frozenset(place for place, result in enumerate(results) if result is not None)


def _has_nan(results: Sequence[Any]) -> bool:
    arrays = (np.asarray(result) for result in results if result is not None)
    return any(array.dtype.kind in "fc" and bool(np.isnan(array).any()) for array in arrays)


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
