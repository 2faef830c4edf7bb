"""The call that a user kernel is tuned for, with its arguments and the results expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autotune.errors import UsageError
from autotune.families.plan import Argument
from autotune.problem.call import KernelCall
from autotune.records.kernel_record import word_of
from autotune.user_kernels.arguments import call_of, launch_arguments
from autotune.user_kernels.results import (
    Array,
    ExpectedArray,
    Reference,
    Verification,
    as_bytes,
    different,
    expected_array,
    reads,
    run_reference,
)
from autotune.user_kernels.steps import varying


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


def workload(
    name: str,
    arguments: Sequence[object],
    reference: Reference,
    verify: Verification,
) -> Workload:
    """A call and the results that the reference expects of it.

    If the contents of an output make no difference to the reference, the kernel is taken only to
    write it; any other output, and every one of results given as such, is an input too. A
    function runs once, and once more for each output.

    Args:
        name: the name of the kernel.
        arguments: NumPy arrays without gaps, and NumPy numbers. In the place of scratch memory and
            of numbers that depend on the configuration, a reference gets None.
        reference: see `Reference`.
        verify: has the tolerances.

    Raises:
        UsageError: for invalid arguments or expected arrays.
    """
    call, in_plan = call_of(name, arguments), launch_arguments(arguments)
    own = varying(arguments)
    arguments = [None if place in own else each for place, each in enumerate(arguments)]
    results = run_reference(reference, arguments)
    outputs = {
        place: expected_array(place, result, argument, verify)
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
    verify: Verification,
) -> Workload:
    """A call that expects the results of one of its configurations.

    Args:
        work: the call.
        results: the contents that the configuration left in each array.
        verified: the configuration.
        verify: has the tolerances.

    Raises:
        UsageError: if it changed no array, or left NaN in one.
    """
    buffers = []
    for buffer, result in zip(work.buffers, results, strict=True):
        bits = result.view(np.uint8), buffer.before.view(np.uint8)
        if np.array_equal(*bits):
            buffers.append(buffer)
            continue
        expected = expected_array(buffer.place, result, buffer.before, verify, verified)
        buffers.append(replace(buffer, expected=expected))
    if all(buffer.expected is None for buffer in buffers):
        raise UsageError(
            f"{verified} runs but changes no array, so that nothing can be verified against it; "
            "give a reference, or outputs with other contents"
        )
    return replace(work, buffers=tuple(buffers), verified=verified)
