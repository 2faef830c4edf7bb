"""The call that a user kernel is tuned for, and the results expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.errors import UsageError
from autotune.families.plan import SCALARS, Argument
from autotune.problem.call import KernelCall
from autotune.records.kernel_record import word_of
from autotune.user_kernels.arrays import described, foreign
from autotune.user_kernels.comparison import ExpectedArray
from autotune.user_kernels.expected import (
    Array,
    Reference,
    as_bytes,
    check_tolerances,
    different,
    expected_array,
    reads,
    run_reference,
)

DTYPES = (*SCALARS, "complex64", "complex128")
"""The element types of arrays."""


TIME_LIMIT_S = 20.0
"""Seconds that a configuration may take by default."""


@dataclass(frozen=True)
class Verification:
    """How the results of a user kernel are compared with the expected ones.

        autotune.tune_kernel(..., verify=autotune.Verification(rtol=1e-3))

    Attributes:
        rtol: relative tolerance of an element; by default 1e-2 in float16, 1e-4 in float32, 1e-9
            in float64, and 0 for whole numbers.
        atol: absolute tolerance, added to it; by default `rtol` times the mean absolute element.
        time_limit: seconds for one configuration, verification and all samples together; one that
            takes longer is not tried again.

    Raises:
        UsageError: for a time limit of 0 seconds or less.
    """

    rtol: float | None = None
    atol: float | None = None
    time_limit: float = TIME_LIMIT_S

    def __post_init__(self) -> None:
        if not self.time_limit > 0:
            raise UsageError(f"time_limit is {self.time_limit!r}; give more than 0 seconds")


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
        verified: the configuration whose results are expected; empty if a reference gave them.
    """

    call: KernelCall
    arguments: tuple[Argument, ...]
    buffers: tuple[ArrayArgument, ...]
    verified: str = ""

    def __str__(self) -> str:
        return str(self.call)

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        return sum(buffer.before.nbytes for buffer in self.buffers)


def call_of(name: str, arguments: Sequence[object]) -> KernelCall:
    """The call of a kernel with these arguments.

    Raises:
        UsageError: for an argument that is neither a NumPy array nor a NumPy number.
    """
    texts = (_text(place, argument) for place, argument in enumerate(arguments))
    return KernelCall(name, tuple(texts))


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
    write it; any other output, and every one of results given as such, is an input too. A
    function runs once, and once more for each output.

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
    check_tolerances(rtol, atol)
    results = run_reference(reference, arguments)
    outputs = {
        place: expected_array(place, result, argument, rtol, atol)
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
            read = not callable(reference) or reads(reference, arguments, place, results)
            if expected is None or read:
                buffers.append(ArrayArgument(place, as_bytes(argument.copy()), expected))
            else:
                poison = different(expected.values.astype(argument.dtype))
                buffers.append(ArrayArgument(place, as_bytes(poison), expected, written=True))
    return Workload(call, in_plan, tuple(buffers))


def unverified(name: str, arguments: Sequence[object]) -> Workload:
    """A call without expected results; `with_results` adds them.

    Raises:
        UsageError: as `call_of`.
    """
    buffers = (
        ArrayArgument(place, as_bytes(argument.copy()), None)
        for place, argument in enumerate(arguments)
        if isinstance(argument, np.ndarray)
    )
    return Workload(call_of(name, arguments), launch_arguments(arguments), tuple(buffers))


def with_results(
    work: Workload,
    results: Sequence[Array],
    verified: str,
    *,
    rtol: float | None,
    atol: float | None,
) -> Workload:
    """A call whose expected results are those of one of its configurations.

    Args:
        work: the call.
        results: the contents that the configuration left in each array.
        verified: the configuration.
        rtol: as for `workload`.
        atol: as for `workload`.

    Raises:
        UsageError: if it changed no array, or left NaN in one.
    """
    check_tolerances(rtol, atol)
    buffers = []
    for buffer, result in zip(work.buffers, results, strict=True):
        bits = result.view(np.uint8), buffer.before.view(np.uint8)
        if np.array_equal(*bits):
            buffers.append(buffer)
            continue
        expected = expected_array(buffer.place, result, buffer.before, rtol, atol, verified)
        buffers.append(replace(buffer, expected=expected))
    if all(buffer.expected is None for buffer in buffers):
        raise UsageError(
            f"{verified} runs but changes no array, so that nothing can be verified against it; "
            "give a reference, or outputs with other contents"
        )
    return replace(work, buffers=tuple(buffers), verified=verified)


def _text(place: int, argument: object) -> str:
    if isinstance(argument, np.ndarray):
        _check(place, argument)
        return f"{argument.dtype.name}[{','.join(map(str, argument.shape))}]"
    if isinstance(argument, np.generic) and argument.dtype.name in SCALARS:
        return f"{argument.dtype.name}={argument.item()!r}"
    if foreign(argument):
        name, shape = described(argument)
        return f"{name}[{','.join(map(str, shape))}]"
    raise UsageError(
        f"argument {place} is {argument!r}; give a NumPy array, or one of PyTorch, CuPy or PyCUDA, "
        "or a number with the type of the "
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
