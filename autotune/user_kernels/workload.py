"""The call that a user kernel is tuned for, and the results expected of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.families.plan import SCALARS, Argument
from autotune.problem.call import Call
from autotune.records.kernel_record import word_of
from autotune.user_kernels.comparison import ExpectedArray

Array = NDArray[Any]
Reference = Callable[..., Sequence[Any]]
"""Called with the arguments; the arrays are copies, which it may change. Returns for each argument
the expected array, or None for an argument that the kernel must not change."""

DTYPES = (*SCALARS, "complex64", "complex128")
"""The element types of arrays."""

# Tolerance relative to the size of an element: a multiple of the rounding error that a sum of a few
# thousand terms has when their order changes.
RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9, "complex64": 1e-4, "complex128": 1e-9}


@dataclass(frozen=True, eq=False)
class ArrayArgument:
    """An array argument.

    Attributes:
        place: its position among the arguments, from 0.
        before: the contents before the kernel runs. For an array that the kernel only writes, every
            element differs from the expected one.
        expected: the contents it must leave; None for no change.
        written: whether the kernel only writes it, as far as the reference tells.
    """

    place: int
    before: Array
    expected: ExpectedArray | None
    written: bool = False

    @property
    def name(self) -> str:
        """The symbol for its address in a plan."""
        return word_of(self.place)


@dataclass(frozen=True, eq=False)
class Workload:
    """One call of a kernel, with its arguments and the expected results.

    Attributes:
        call: the kernel's name and the types of the arguments.
        arguments: the arguments in a plan, with symbols for the addresses of arrays.
        buffers: the array arguments.
    """

    call: Call
    arguments: tuple[Argument, ...]
    buffers: tuple[ArrayArgument, ...]

    def __str__(self) -> str:
        return str(self.call)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(buffer.before.nbytes for buffer in self.buffers)


def call_of(name: str, arguments: Sequence[object]) -> Call:
    """The call of a kernel with these arguments.

    Raises:
        UsageError: for an argument that is neither a NumPy array nor a NumPy number.
    """
    texts = (_text(place, argument) for place, argument in enumerate(arguments))
    return Call(name, tuple(texts))


def launch_arguments(arguments: Sequence[object]) -> tuple[Argument, ...]:
    """The arguments in the form of a plan.

    Raises:
        UsageError: as `call_of`.
    """
    return tuple(_argument(place, argument) for place, argument in enumerate(arguments))


def workload(
    name: str,
    arguments: Sequence[object],
    reference: Reference,
    *,
    rtol: float | None,
    atol: float | None,
) -> Workload:
    """A call and the results that the reference expects of it.

    If the contents of an output make no difference to the reference, the kernel is taken only to
    write it; any other output is an input too. The reference runs once, and once more for each
    output.

    Args:
        name: the name of the kernel.
        arguments: NumPy arrays without gaps, and NumPy numbers.
        reference: see `Reference`.
        rtol: tolerance of an element relative to its size; by default that of its type.
        atol: tolerance added to that; by default `rtol` times the mean size of the elements.

    Raises:
        UsageError: for invalid arguments, expected arrays or tolerances.
    """
    call, in_plan = call_of(name, arguments), launch_arguments(arguments)
    for keyword, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"{keyword} is {value!r}; give a number of at least 0")
    results = _run_reference(reference, arguments)
    outputs = {
        place: _expected(place, result, argument, rtol, atol)
        for place, (result, argument) in enumerate(zip(results, arguments, strict=True))
        if result is not None
    }
    if not outputs:
        raise UsageError(
            "the reference expects every argument to stay as it is, which a kernel that does "
            "nothing fulfils; return the expected array in the place of each output"
        )
    buffers = []
    for place, argument in enumerate(arguments):
        if isinstance(argument, np.ndarray):
            expected = outputs.get(place)
            if expected is None or _reads(reference, arguments, place, results):
                buffers.append(ArrayArgument(place, _as_bytes(argument.copy()), expected))
            else:
                poison = _different(expected.values.astype(argument.dtype))
                buffers.append(ArrayArgument(place, _as_bytes(poison), expected, written=True))
    return Workload(call, in_plan, tuple(buffers))


def _text(place: int, argument: object) -> str:
    if isinstance(argument, np.ndarray):
        _check(place, argument)
        return f"{argument.dtype.name}[{','.join(map(str, argument.shape))}]"
    if isinstance(argument, np.generic) and argument.dtype.name in SCALARS:
        return f"{argument.dtype.name}={argument.item()!r}"
    raise UsageError(
        f"argument {place} is {argument!r}; give a NumPy array, or a number with the type of the "
        f"kernel's parameter, such as numpy.int32({'n' if place else '4096'})"
    )


def _check(place: int, array: Array) -> None:
    if array.dtype.name not in DTYPES or not array.dtype.isnative:
        raise UsageError(
            f"argument {place} is an array of {array.dtype}; give one of {', '.join(DTYPES)}, or "
            "the bits of what NumPy does not have as numpy.uint16"
        )
    if not array.flags.c_contiguous or not array.size:
        raise UsageError(
            f"argument {place} is an array of shape {array.shape} and strides {array.strides}; "
            "give one with at least an element and without gaps (numpy.ascontiguousarray)"
        )


def _argument(place: int, argument: object) -> Argument:
    if isinstance(argument, np.ndarray):
        return Argument("pointer", word_of(place))
    assert isinstance(argument, np.generic)
    name = argument.dtype.name
    bits = argument.view(np.uint16) if name == "float16" else argument
    value = bits.item()
    return Argument(SCALARS[name], int(value) if isinstance(value, bool) else value)


def _run_reference(reference: Reference, arguments: Sequence[object]) -> list[Any]:
    """The results of the reference, run on copies of the arguments."""
    copies = [
        argument.copy() if isinstance(argument, np.ndarray) else argument for argument in arguments
    ]
    results = reference(*copies)
    if not isinstance(results, list | tuple) or len(results) != len(arguments):
        count = f"{len(results)}" if isinstance(results, list | tuple) else type(results).__name__
        raise UsageError(
            f"the reference returned {count} for {len(arguments)} arguments; return a list with "
            "the expected array of each output, and None for every other argument"
        )
    return list(results)


def _expected(
    place: int, result: object, argument: object, rtol: float | None, atol: float | None
) -> ExpectedArray:
    """The array that the reference expects at a position, checked."""
    values = np.array(result)
    if not isinstance(argument, np.ndarray) or values.shape != argument.shape:
        shape = f"shape {argument.shape}" if isinstance(argument, np.ndarray) else "a number"
        raise UsageError(
            f"the reference expects shape {values.shape} in argument {place}, which has {shape}; "
            "return None for what is no output, and arrays of the arguments' shapes"
        )
    if not _holds(argument.dtype, values):
        raise UsageError(
            f"the reference expects {values.dtype} in argument {place}, an array of "
            f"{argument.dtype}, which cannot hold it; return that type"
        )
    if count := int(np.isnan(values).sum()):
        raise UsageError(
            f"the reference expects NaN in {count} elements of argument {place}: nothing can be "
            "verified against that; choose arguments whose result is a number"
        )
    share = RTOL.get(argument.dtype.name, 0.0) if rtol is None else rtol
    if atol is None:
        sizes = np.abs(values[np.isfinite(values)]).astype(np.float64)
        atol = share * float(sizes.mean()) if sizes.size else 0.0
    return ExpectedArray(_as_bytes(np.ascontiguousarray(values)), share, atol)


def _as_bytes(array: Array) -> Array:
    """An array of bool viewed as bytes, as a kernel may leave values other than 0 and 1."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Whether an array of that type can hold the values; floating-point types may round them."""
    if values.dtype.kind not in "iubfc":
        return False
    if dtype.kind in "fc":
        return np.can_cast(values.dtype, dtype, "same_kind")
    return values.dtype.kind in "iub" and bool((values.astype(dtype) == values).all())


def _reads(
    reference: Reference, arguments: Sequence[object], place: int, results: Sequence[Any]
) -> bool:
    """Whether the contents of the array at `place` make a difference to the reference."""
    changed = list(arguments)
    array = changed[place]
    assert isinstance(array, np.ndarray)
    changed[place] = _different(array)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = _run_reference(reference, changed)
    except Exception:  # it read the changed contents and failed on them
        return True
    pairs = zip(results, again, strict=True)
    return any(not np.array_equal(first, second) for first, second in pairs if first is not None)


def _different(array: Array) -> Array:
    """An array of that type and shape that differs from `array` in every element."""
    if array.dtype.kind in "fc":
        return np.full_like(array, np.nan)
    return ~array
