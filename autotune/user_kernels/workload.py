"""What a kernel of the user's is called with, and what has to be in its arrays afterwards."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.families.plan import Argument, ArgumentType
from autotune.problem.call import Call
from autotune.user_kernels.comparison import ExpectedArray

Array = NDArray[Any]
Reference = Callable[..., Sequence[Any]]
"""Called with the arguments, of which it may change the arrays: they are copies. Returns for each
argument the expected array, or None for what the kernel must leave as it is."""

SCALARS: dict[str, ArgumentType] = {
    **{"bool": "u8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16"},
    **{"int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64"},
    **{"float16": "u16", "float32": "f32", "float64": "f64"},
}
"""How numbers are passed; float16 as its bits, which the driver does not look at."""
DTYPES = (*SCALARS, "complex64", "complex128")
"""Types of arrays."""

# What an element may be off by, relative to its size: so many times the rounding of a sum that the
# order of a few thousand terms changes.
RTOL = {"float16": 1e-2, "float32": 1e-4, "float64": 1e-9, "complex64": 1e-4, "complex128": 1e-9}


@dataclass(frozen=True, eq=False)
class Buffer:
    """An array argument.

    Attributes:
        place: among the arguments, from 0.
        before: what the kernel finds there. Where it only writes, it is something that it has to
            overwrite.
        expected: what it must leave there; None for what it found.
        written: whether it is only written, as far as the reference tells.
    """

    place: int
    before: Array
    expected: ExpectedArray | None
    written: bool = False

    @property
    def name(self) -> str:
        """The symbol that stands for its address in a plan."""
        return name_of(self.place)


@dataclass(frozen=True, eq=False)
class Workload:
    """One call of a kernel: what it is given and what it has to compute.

    Attributes:
        call: its name and the types of its arguments.
        arguments: as a plan has them, with symbols for the addresses of arrays.
        buffers: the arrays.
    """

    call: Call
    arguments: tuple[Argument, ...]
    buffers: tuple[Buffer, ...]

    def __str__(self) -> str:
        return str(self.call)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays."""
        return sum(buffer.before.nbytes for buffer in self.buffers)


def name_of(place: int) -> str:
    """The symbol of the array at a place among the arguments."""
    return f"argument {place}"


def call_of(name: str, arguments: Sequence[object]) -> Call:
    """The call of a kernel with these arguments.

    Raises:
        UsageError: for an argument that is neither a NumPy array nor a NumPy number.
    """
    return Call(name, tuple(_text(place, one) for place, one in enumerate(arguments)))


def launch_arguments(arguments: Sequence[object]) -> tuple[Argument, ...]:
    """The arguments as a plan has them.

    Raises:
        UsageError: as `call_of`.
    """
    return tuple(_argument(place, one) for place, one in enumerate(arguments))


def workload(
    name: str,
    arguments: Sequence[object],
    reference: Reference,
    *,
    rtol: float | None,
    atol: float | None,
) -> Workload:
    """The call, and what the reference says that it computes.

    An output whose present contents make no difference to the reference is one that the kernel only
    writes; any other is input as well. The reference is called once, and once more for each output.

    Args:
        name: of the kernel.
        arguments: NumPy arrays without gaps, and NumPy numbers.
        reference: see `Reference`.
        rtol: what an element may be off by, as a share of its size; by default by type.
        atol: what it may be off by besides; by default `rtol` times the mean size of the elements.

    Raises:
        UsageError: for arguments, expectations or tolerances that are none.
    """
    call, plain = call_of(name, arguments), launch_arguments(arguments)
    for what, value in (("rtol", rtol), ("atol", atol)):
        if value is not None and not 0 <= value < math.inf:
            raise UsageError(f"{what} is {value!r}; give a number of at least 0")
    found = _referred(reference, arguments)
    outputs = {
        place: _expected(place, one, array, rtol, atol)
        for place, (one, array) in enumerate(zip(found, arguments, strict=True))
        if one is not None
    }
    if not outputs:
        raise UsageError(
            "the reference expects every argument to stay as it is, which a kernel that does "
            "nothing fulfils; return the expected array in the place of each output"
        )
    buffers = []
    for place, one in enumerate(arguments):
        if isinstance(one, np.ndarray):
            expected = outputs.get(place)
            if expected is None or _reads(reference, arguments, place, found):
                buffers.append(Buffer(place, _bytes(one.copy()), expected))
            else:
                poison = _other(expected.values.astype(one.dtype))
                buffers.append(Buffer(place, _bytes(poison), expected, written=True))
    return Workload(call, plain, tuple(buffers))


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
        return Argument("pointer", name_of(place))
    assert isinstance(argument, np.generic)
    name = argument.dtype.name
    bits = argument.view(np.uint16) if name == "float16" else argument
    value = bits.item()
    return Argument(SCALARS[name], int(value) if isinstance(value, bool) else value)


def _referred(reference: Reference, arguments: Sequence[object]) -> list[Any]:
    copies = [one.copy() if isinstance(one, np.ndarray) else one for one in arguments]
    found = reference(*copies)
    if not isinstance(found, list | tuple) or len(found) != len(arguments):
        what = f"{len(found)}" if isinstance(found, list | tuple) else type(found).__name__
        raise UsageError(
            f"the reference returned {what} for {len(arguments)} arguments; return a list with the "
            "expected array of each output, and None for every other argument"
        )
    return list(found)


def _expected(
    place: int, found: object, argument: object, rtol: float | None, atol: float | None
) -> ExpectedArray:
    """What the reference expects at a place, checked."""
    values = np.array(found)
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
    return ExpectedArray(_bytes(np.ascontiguousarray(values)), share, atol)


def _bytes(array: Array) -> Array:
    """An array of bool as one of bytes, as a kernel may leave others there than 0 and 1."""
    return array.view(np.uint8) if array.dtype == np.bool_ else array


def _holds(dtype: np.dtype[Any], values: Array) -> bool:
    """Whether an array of that type can hold the values, rounded if it is of floating point."""
    if values.dtype.kind not in "iubfc":
        return False
    if dtype.kind in "fc":
        return np.can_cast(values.dtype, dtype, "same_kind")
    return values.dtype.kind in "iub" and bool((values.astype(dtype) == values).all())


def _reads(
    reference: Reference, arguments: Sequence[object], place: int, found: Sequence[Any]
) -> bool:
    """Whether what the array at `place` holds makes a difference to the reference."""
    changed = list(arguments)
    array = changed[place]
    assert isinstance(array, np.ndarray)
    changed[place] = _other(array)
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = _referred(reference, changed)
    except Exception:  # it looked at what it cannot use
        return True
    pairs = zip(found, again, strict=True)
    return any(not np.array_equal(one, other) for one, other in pairs if one is not None)


def _other(array: Array) -> Array:
    """An array of that type and shape that agrees with `array` nowhere."""
    if array.dtype.kind in "fc":
        return np.full_like(array, np.nan)
    return ~array
