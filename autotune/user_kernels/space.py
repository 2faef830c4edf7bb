"""The search space of a user kernel: its parameters with their values, and its constraints."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import SupportsFloat, SupportsIndex

import numpy as np

from autotune.errors import UsageError
from autotune.families.config import Value, value_of
from autotune.files.decoding import is_macro_name, is_word
from autotune.user_kernels.geometry import (
    ParameterValues,
)

Predicate = Callable[[ParameterValues], object]
"""Whether a combination of parameter values is allowed."""

# The search stores the index of a value in one byte, and enumerates all configurations.
MOST_VALUES, MOST = 256, 250_000

RESERVED = "family"
"""A parameter name that the search uses itself."""

_TOKENS = re.compile(r"[^,\s]([^,\n]{0,198}[^,\s])?")

LARGEST = 10**15


def checked_constraints(constraints: Mapping[str, Predicate]) -> dict[str, Predicate]:
    """Constraints by their reasons; raises a `UsageError` for another thing than a function."""
    for reason, predicate in constraints.items():
        if not isinstance(reason, str) or not reason.strip() or not callable(predicate):
            raise UsageError(
                f"constraint {reason!r} is {predicate!r}; give a short reason and a function of "
                "the parameters that returns whether they go together"
            )
    return dict(constraints)


def checked_parameters(parameters: Mapping[str, Sequence[Value]]) -> dict[str, tuple[Value, ...]]:
    """The distinct values of each parameter.

    Raises:
        UsageError: for a name or a value that C++ cannot have, or too many of them.
    """
    checked: dict[str, tuple[Value, ...]] = {}
    for name, values in parameters.items():
        if not isinstance(name, str) or not is_macro_name(name) or name == RESERVED:
            raise UsageError(
                f"a parameter is called {name!r}; give a C++ identifier other than {RESERVED!r}, "
                "a name that C++ does not use or reserve"
            )
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise UsageError(f"values of {name} are {values!r}; give a sequence of values")
        checked_values = [_value(name, value) for value in values]
        if any(isinstance(value, float) for value in checked_values):
            checked_values = [_as_float(name, value) for value in checked_values]
        distinct = tuple(dict.fromkeys(checked_values))
        if not 1 <= len(distinct) <= MOST_VALUES:
            raise UsageError(f"{name} has {len(distinct)} values; give 1 to {MOST_VALUES}")
        checked[name] = distinct
    if (count := prod(map(len, checked.values()))) > MOST:
        raise UsageError(
            f"the parameters have {count:,} combinations; give values that have at most {MOST:,}"
        )
    return checked


def _value(name: str, value: object) -> Value:
    """A value of a parameter: a whole number, which a boolean is too, a float or a word."""
    if isinstance(value, str):
        if not (_TOKENS.fullmatch(value) and is_word(value)) or value_of(value) != value:
            raise UsageError(
                f"{name} has the value {value!r}; give a word of at most 200 characters without "
                "commas, quotes and braces that is not a number: name a type with commas by `using`"
            )
        return str(value)
    if isinstance(value, SupportsIndex | np.bool_):
        whole = int(value)
        if abs(whole) >= LARGEST:
            raise UsageError(f"{name} has the value {whole}; give numbers below 10^15")
        return whole
    return _as_float(name, value)


def _as_float(name: str, value: object) -> float:
    if not isinstance(value, SupportsFloat) or not abs(number := float(value)) < LARGEST:
        raise UsageError(
            f"{name} has the value {value!r}; give whole numbers, booleans, words or finite "
            "floats, of one kind"
        )
    return number
