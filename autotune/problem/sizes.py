"""The sizes of a problem, checked or drawn."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from random import Random
from typing import SupportsIndex

from autotune.errors import ProblemError
from autotune.problem.fields import LARGEST_DIMENSION


def whole_size(name: str, size: object, largest: int = LARGEST_DIMENSION) -> int:
    """A size as an int. Any integer type will do, such as NumPy's."""
    # Test for int first: testing for SupportsIndex takes longer than everything else here.
    if type(size) is not int and (isinstance(size, bool) or not isinstance(size, SupportsIndex)):
        raise ProblemError(f"{name} is {size!r}; give a whole number of at least 1")
    if not 1 <= (whole := index(size)) <= largest:
        raise ProblemError(f"{name} is {whole}; give 1 to {largest}")
    return whole


def log_uniform(random: Random, smallest: Sequence[int], largest: Sequence[int]) -> list[float]:
    """Random sizes whose logarithms are uniform between those of `smallest` and `largest`."""
    return [
        math.exp(random.uniform(math.log(low), math.log(high)))
        for low, high in zip(smallest, largest, strict=True)
    ]
