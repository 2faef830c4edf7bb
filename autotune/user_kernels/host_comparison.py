"""Results that the host compares: by a function of the user, or with a reference for each
configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.user_kernels.results import (
    Array,
    ExpectedArray,
    Verification,
    compare,
    expected_array,
)
from autotune.user_kernels.workload import ArrayArgument, Workload

ResultsOf = Callable[[Config], Sequence[Any]]
"""The results that a reference expects of a configuration, as `run_reference` returns them."""


@dataclass(frozen=True, eq=False)
class HostComparison:
    """Says why the contents that a configuration leaves in the arrays are wrong.

    Attributes:
        work: the call, with the results that are expected of the first configuration.
        verify: has the function, or the tolerances.
        results_of: the results expected of a configuration; None for those of the call.
    """

    work: Workload
    verify: Verification
    results_of: ResultsOf | None = None

    def __call__(self, config: Config, contents: Sequence[Array]) -> str | None:
        """The reason, or None if the contents of all array arguments are right.

        Raises:
            UsageError: for an invalid result of the reference or the function.
        """
        expected = self._expected(config)
        buffers = zip(self.work.buffers, contents, strict=True)
        actual = {buffer.place: each for buffer, each in buffers if buffer.place in expected}
        if self.verify.check is not None:
            return self._checked(expected, actual)
        for buffer in self.work.buffers:
            if (values := expected.get(buffer.place)) is not None:
                comparison = compare(actual[buffer.place], values)
                if comparison.wrong:
                    return buffer.wrong(comparison)
        return None

    def _expected(self, config: Config) -> dict[int, ExpectedArray]:
        outputs = [buffer for buffer in self.work.buffers if buffer.expected is not None]
        if self.results_of is None:
            return {buffer.place: buffer.expected for buffer in outputs if buffer.expected}
        results = self.results_of(config)
        places = [place for place, result in enumerate(results) if result is not None]
        first = [buffer.place for buffer in outputs]
        if places != first:
            raise UsageError(
                f"the reference expects results in the arguments {places} of {config}, in "
                f"{first} of the first configuration; return arrays for the same outputs"
            )
        return {
            buffer.place: expected_array(
                buffer.place, results[buffer.place], buffer.original, self.verify
            )
            for buffer in outputs
        }

    def _checked(self, expected: dict[int, ExpectedArray], actual: dict[int, Array]) -> str | None:
        """Why the user's function refuses the results."""
        assert self.verify.check is not None
        count = len(self.work.call.arguments)
        wanted: list[Array | None] = [None] * count
        got = list(wanted)
        for buffer in self.work.buffers:
            if (place := buffer.place) in expected:
                pair = expected[place].values, actual[place]
                wanted[place], got[place] = (each.T for each in pair) if buffer.fortran else pair
        try:
            answer = self.verify.check(wanted, got)
        except AssertionError as error:
            return f"wrong result: {' '.join(str(error).split())[:LONGEST]}"
        if answer is None:
            raise UsageError("the check returned None; return whether the results are right")
        return None if answer else "wrong result: the check returned False"


LONGEST = 300
"""Characters of an assertion in a reason."""


def compared_on_host(
    work: Workload, verify: Verification, results_of: ResultsOf | None = None
) -> Workload:
    """A call whose outputs the host compares if it has to; `results_of` as for `HostComparison`."""
    if verify.check is None and results_of is None:
        return work

    def left_to_host(buffer: ArrayArgument) -> ArrayArgument:
        return buffer if buffer.expected is None else replace(buffer, expected=None, free=True)

    buffers = tuple(map(left_to_host, work.buffers))
    return replace(work, buffers=buffers, on_host=HostComparison(work, verify, results_of))
