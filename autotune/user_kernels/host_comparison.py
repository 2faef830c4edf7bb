"""Results that the host compares: by a function of the user, or with a reference for each
configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.user_kernels.guarded_arrays import difference
from autotune.user_kernels.results import (
    Array,
    Check,
    ExpectedArray,
    Verification,
    compare,
    expected_array,
)
from autotune.user_kernels.workload import ArrayArgument, Workload

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
    """The arrays expected of a configuration, by position."""
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
    """Why the user's function refuses results."""
    try:
        agree = check(expected, actual)
    except AssertionError as error:
        return f"wrong result: {' '.join(str(error).split())[:LONGEST]}"
    if agree is None:
        raise UsageError("the check returned None; return whether the results are right")
    return None if agree else "wrong result: the check returned False"
