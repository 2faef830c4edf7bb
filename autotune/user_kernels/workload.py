"""The call that a user kernel is tuned for, with its arguments and the results expected of it.

The host compares the results for a function of the user, or a reference by configuration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autotune.cuda.textures import Texture
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Argument
from autotune.problem.call import KernelCall
from autotune.records.kernel_record import word_of
from autotune.user_kernels.arguments import (
    ContentOf,
    call_of,
    constants_of,
    launch_arguments,
)
from autotune.user_kernels.results import (
    Array,
    Check,
    Comparison,
    ExpectedArray,
    Reference,
    Verification,
    as_bytes,
    column_major,
    compare,
    different,
    expected_array,
    in_memory_order,
    results_of,
)
from autotune.user_kernels.steps import for_reference


@dataclass(frozen=True, eq=False)
class ArrayArgument:
    """An array argument.

    Attributes:
        place: its position among the arguments, from 0.
        before: the contents before the kernel runs. For an array that the kernel only writes, every
            element differs from the expected one.
        expected: the contents it must leave; None for no change.
        written: whether the kernel only writes it, as far as the reference tells.
        fortran: whether the caller's array lies in Fortran order; `before` and `expected` are then
            its transpose.
        free: whether the process of the search compares its contents, if anything does.
    """

    place: int
    before: Array
    expected: ExpectedArray | None
    written: bool = False
    fortran: bool = False
    free: bool = False

    @property
    def name(self) -> str:
        """The symbol for its address in a plan."""
        return word_of(self.place)

    def as_given(self, array: Array) -> Array:
        """An array in memory order with the indices of the caller's array."""
        return array.T if self.fortran else array


def difference(buffer: ArrayArgument, comparison: Comparison) -> str:
    """The number of wrong elements of an array, with the worst one."""
    indices = comparison.place[::-1] if buffer.fortran else comparison.place
    place = f"{indices if len(indices) != 1 else indices[0]}{comparison.member}"
    text = (
        f"argument {buffer.place}: wrong result: {comparison.wrong} of {buffer.before.size} "
        f"elements, such as {comparison.actual:.6g} instead of {comparison.desired:.6g} at "
        f"{place}, tolerance {comparison.allowed:.3g}"
    )
    if comparison.actual == comparison.actual or not buffer.written:
        return text
    return f"{text}; it held NaN before, as the reference does not read it"


HostFault = Callable[[Config, Sequence[Array]], str | None]
"""Says why the contents that a configuration leaves in the arrays are wrong, or returns None."""


@dataclass(frozen=True, eq=False)
class Workload:
    """One call of a kernel, with its arguments and the expected results.

    Attributes:
        call: the kernel's name and the types of the arguments.
        arguments: the arguments in a plan, with symbols for the addresses of arrays.
        buffers: the array arguments.
        verified: the configuration whose results are expected; empty if a reference gave them;
            `NOT_VERIFIED` if nothing is compared.
        on_host: compares the free arrays; it stays in the process of the search.
        textures: the texture arguments by their symbols in a plan.
        constants: the contents of `__constant__` variables by their names in C++.
    """

    call: KernelCall
    arguments: tuple[Argument, ...]
    buffers: tuple[ArrayArgument, ...]
    verified: str = ""
    on_host: HostFault | None = None
    textures: Mapping[str, Texture] = field(default_factory=dict)
    constants: Mapping[str, Array] = field(default_factory=dict)

    def __str__(self) -> str:
        return str(self.call)

    def __getstate__(self) -> dict[str, object]:
        return {**vars(self), "on_host": None}

    @property
    def bytes(self) -> int:
        """Bytes of all arrays together."""
        textures = sum(texture.array.nbytes for texture in self.textures.values())
        return textures + sum(buffer.before.nbytes for buffer in self.buffers)


def workload(
    name: str,
    arguments: Sequence[object],
    reference: Reference,
    verify: Verification,
    constants: ContentOf | None = None,
) -> Workload:
    """A call and the results that the reference expects of it.

    If the contents of an output make no difference to the reference, the kernel is taken only to
    write it; any other output, and every one of results given as such, is an input too.

    Args:
        name: the name of the kernel.
        arguments: NumPy arrays without gaps, NumPy numbers and structures, and textures. In the
            place of scratch memory and of numbers that depend on the configuration, a reference
            gets None.
        reference: see `Reference`.
        verify: has the tolerances.
        constants: the contents of `__constant__` variables by their names.

    Raises:
        UsageError: for invalid arguments or expected arrays.
    """
    work = unverified(name, arguments, constants)
    results, unread = results_of(reference, arguments := for_reference(arguments))
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
    for buffer in work.buffers:
        expected = outputs.get(buffer.place)
        if expected is None or buffer.place not in unread:
            buffers.append(replace(buffer, expected=expected))
        else:
            dtype = buffer.before.dtype
            avoided = buffer.before if dtype.kind in "fc" else expected.values.astype(dtype)
            poison = different(avoided)
            buffers.append(replace(buffer, before=poison, expected=expected, written=True))
    return replace(work, buffers=tuple(buffers))


def unverified(
    name: str, arguments: Sequence[object], constants: ContentOf | None = None
) -> Workload:
    """A call without expected results; `with_results` adds them.

    Raises:
        UsageError: as `call_of`.
    """
    buffers = (
        ArrayArgument(
            place, as_bytes(in_memory_order(argument)), None, fortran=column_major(argument)
        )
        for place, argument in enumerate(arguments)
        if isinstance(argument, np.ndarray)
    )
    textures = {
        word_of(place): argument
        for place, argument in enumerate(arguments)
        if isinstance(argument, Texture)
    }
    contents = constants_of(constants)
    call, in_plan = call_of(name, arguments, constants), launch_arguments(arguments)
    return Workload(call, in_plan, tuple(buffers), textures=textures, constants=contents)


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
        before = buffer.before.reshape(-1).view(np.uint8)
        if np.array_equal(result.reshape(-1).view(np.uint8), before):
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


ResultsOf = Callable[[Config], Sequence[Any]]
"""The results that a reference expects of a configuration, as `run_reference` returns them."""

LONGEST = 300
"""Characters of an assertion in a reason."""


def compared_on_host(
    work: Workload, verify: Verification, results_of: ResultsOf | None = None
) -> Workload:
    """A call whose outputs the host compares, if there is a function for it or `results_of`."""
    if verify.check is None and results_of is None:
        return work
    outputs = {buffer.place: buffer for buffer in work.buffers if buffer.expected is not None}

    def fault(config: Config, contents: Sequence[Array]) -> str | None:
        expected = _expected(outputs, config, verify, results_of)
        buffers = zip(work.buffers, contents, strict=True)
        actual = {buffer.place: content for buffer, content in buffers if buffer.place in outputs}
        if verify.check is None:
            compared = ((outputs[at], compare(actual[at], each)) for at, each in expected.items())
            return next((difference(*each) for each in compared if each[1].wrong), None)
        expected_list, actual_list = (
            [
                outputs[place].as_given(arrays[place]) if place in outputs else None
                for place in range(len(work.call.arguments))
            ]
            for arrays in ({place: each.values for place, each in expected.items()}, actual)
        )
        return _refusal(verify.check, expected_list, actual_list)

    free = (
        replace(buffer, expected=None, free=True) if buffer.place in outputs else buffer
        for buffer in work.buffers
    )
    return replace(work, buffers=tuple(free), on_host=fault)


def _expected(
    outputs: Mapping[int, ArrayArgument],
    config: Config,
    verify: Verification,
    results_of: ResultsOf | None,
) -> dict[int, ExpectedArray]:
    if results_of is None:
        return {place: each.expected for place, each in outputs.items() if each.expected}
    results = {place: each for place, each in enumerate(results_of(config)) if each is not None}
    if results.keys() != outputs.keys():
        raise UsageError(
            f"the reference expects results in the arguments {[*results]} of {config}, in "
            f"{[*outputs]} of the first configuration; return arrays for the same outputs"
        )
    return {
        place: expected_array(place, result, outputs[place].as_given(outputs[place].before), verify)
        for place, result in results.items()
    }


def _refusal(check: Check, expected: list[Any], actual: list[Any]) -> str | None:
    try:
        agree = check(expected, actual)
    except AssertionError as error:
        return f"wrong result: {' '.join(str(error).split())[:LONGEST]}"
    if agree is None:
        raise UsageError("the check returned None; return whether the results are right")
    return None if agree else "wrong result: the check returned False"
