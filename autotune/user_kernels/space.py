"""The search space of a user kernel: its parameters with their values, and its constraints.

`Enumeration` sets one parameter after another, and checks a constraint as soon as the parameters
that it reads are set, so that it rejects whole branches at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from types import MappingProxyType
from typing import Any, SupportsFloat, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UsageError
from autotune.families.config import Config, Value, value_of
from autotune.families.config_table import MOST_VALUES, Codes, ConfigTable
from autotune.files.decoding import is_macro_name, is_word
from autotune.user_kernels.expressions import Expression
from autotune.user_kernels.geometry import ParameterValues, evaluate

T = TypeVar("T")

Predicate = Callable[[ParameterValues], object]
"""Whether a combination of parameter values is allowed."""
Constraints = Mapping[str, Predicate | str] | Sequence[Predicate | str]
"""Functions of the parameters, or texts such as `TILE * ROWS <= 1024`, by a short reason or as a
list."""

MOST = 2_000_000
"""Legal configurations."""
MOST_WALKED = 100_000_000
"""Combinations of some parameters that are checked: texts take about 40 s for them."""
IN_ORDER = 250_000
"""Combinations up to which the order of the constraints is that in which they are checked."""

RESERVED = "family"
"""A parameter name that the search uses itself."""

_TOKENS = re.compile(r"[^,\s]([^,\n]{0,198}[^,\s])?")

LARGEST = 10**15


def checked_constraints(
    constraints: Constraints | None, parameters: Collection[str]
) -> dict[str, Predicate]:
    """Constraints as functions, by their reasons. In a list a text is its own reason, and a
    function has its name and position.

    Raises:
        UsageError: for another thing than a function or an expression in the parameters.
    """
    if isinstance(constraints, str) or not isinstance(constraints, Mapping | Sequence | None):
        raise UsageError(
            f"constraints is {constraints!r}; give a list of functions and texts, or a mapping to "
            "them from short reasons"
        )
    if not isinstance(constraints, Mapping):
        constraints = {_reason(item, place): item for place, item in enumerate(constraints or ())}
    checked: dict[str, Predicate] = {}
    for reason, predicate in constraints.items():
        if isinstance(predicate, str):
            predicate = Expression(f"constraint {reason!r}", predicate, parameters)
        if not isinstance(reason, str) or not reason.strip() or not callable(predicate):
            raise UsageError(
                f"constraint {reason!r} is {predicate!r}; give a short reason and a function of "
                "the parameters, or a text, that says whether they go together"
            )
        checked[reason] = predicate
    return checked


def _reason(constraint: Predicate | str, place: int) -> str:
    if isinstance(constraint, str):
        return constraint
    return f"{getattr(constraint, '__name__', 'function').strip('<>')} {place}"


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


@dataclass(frozen=True)
class LegalSpace:
    """The combinations that fulfil all constraints, and why the others do not.

    Attributes:
        configs: the legal configurations; the last parameter varies fastest.
        rejected: the number of other combinations, each under the reason of the first constraint
            that it breaks, in their order; in a space above `IN_ORDER` in that of the checks.
        examples: a rejected configuration for each reason.
    """

    configs: ConfigTable
    rejected: Mapping[str, int]
    examples: Mapping[str, Config]


BLOCK = 2**18
"""Combinations that are checked at once."""

SAMPLE = 64
"""Combinations of a block on which an early check has to find one to go on."""


class _MisplacedError(Exception):
    """A constraint was checked too early: it reads more parameters, or it fails."""


class _UnsetError(BaseException):
    """A function reads a parameter that is not set; an `except Exception` in it passes this on."""


class Enumeration:
    """An enumeration of legal combinations.

    A block of combinations is an array of codes, a row for each and a column for each parameter
    that is set. A walk ends where a constraint turns out to read a parameter that is not set, and
    another begins.
    """

    def __init__(
        self,
        family: str,
        parameters: Mapping[str, Sequence[Value]],
        constraints: Mapping[str, Predicate],
    ) -> None:
        self._family, self._parameters = family, parameters
        self._constraints = [
            (reason, part)
            for reason, predicate in constraints.items()
            for part in getattr(predicate, "parts", [predicate])
        ]
        self._sizes = {name: len(values) for name, values in parameters.items()}
        # The parameters that each constraint reads, as far as they are known, in that order.
        first = ConfigTable(family, parameters, np.zeros((1, len(parameters)), np.uint8))
        self._reads = [_reads(predicate, first) for _, predicate in self._constraints]
        # The constraints that are checked after all in front of them.
        in_order = prod(self._sizes.values()) <= IN_ORDER
        self._waiting = set(range(len(self._reads)) if in_order else ())

    def space(self) -> LegalSpace:
        """The legal combinations.

        Raises:
            UsageError: if a constraint fails, or there are too many combinations.
        """
        while True:
            self._plan()
            try:
                blocks = [*self._walk(np.zeros((1, 0), np.uint8))]
                break
            except _MisplacedError:
                continue
        codes = np.vstack([np.zeros((0, len(self._order)), np.uint8), *blocks])
        codes = codes[:, [self._order.index(name) for name in self._parameters]]
        if self._order:
            codes = codes[np.lexsort(codes.T[::-1])]
        configs = ConfigTable(self._family, self._parameters, codes)
        return LegalSpace(configs, self._rejected, self._examples)

    def _plan(self) -> None:
        """Chooses the order of the parameters, and after how many each constraint is checked: next
        comes the constraint with the fewest combinations of parameters that are still to be set.
        An early check of a function stands at each level between."""
        self._rejected, self._examples = Counter[str](), dict[str, Config]()
        self._walked = self._legal = 0
        order: dict[str, None] = {}
        pending = [*range(len(self._reads))]
        self._checks: list[list[tuple[int, bool]]] = [[] for _ in range(len(self._sizes) + 1)]

        def combinations(place: int) -> int:
            return prod(self._sizes[name] for name in self._reads[place] if name not in order)

        while pending:
            ready = (each for each in pending if each == pending[0] or each not in self._waiting)
            place = min(ready, key=combinations)
            pending.remove(place)
            text = isinstance(self._constraints[place][1], Expression)
            for name in [name for name in self._reads[place] if name not in order]:
                if not text and place not in self._waiting:
                    self._checks[len(order)].append((place, True))
                order[name] = None
            self._checks[len(order)].append((place, False))
        self._order = [*(order | dict.fromkeys(self._sizes))]

    def _walk(self, block: Codes) -> Iterator[Codes]:
        """The legal combinations that continue those of a block."""
        block = self._allowed(block)
        if block.shape[1] == len(self._order):
            self._legal += len(block)
            if self._legal > MOST:
                raise UsageError(
                    f"more than {MOST:,} configurations fulfil all constraints; give fewer values, "
                    "or further constraints"
                )
            yield block
            return
        size = self._sizes[self._order[block.shape[1]]]
        step = max(1, BLOCK // size)
        for start in range(0, len(block), step):
            part = block[start : start + step]
            values = np.tile(np.arange(size, dtype=np.uint8), len(part))
            yield from self._walk(np.column_stack([np.repeat(part, size, axis=0), values]))

    def _allowed(self, block: Codes) -> Codes:
        """The combinations that the constraints of their level allow; counts the others."""
        self._walked += len(block)
        if self._walked > MOST_WALKED:
            raise UsageError(
                f"more than {MOST_WALKED:,} combinations of some parameters were checked; give "
                "fewer values, or constraints that read fewer parameters"
            )
        level = block.shape[1]
        for place, early in self._checks[level]:
            if early and len(block) > SAMPLE:
                sample = block[:: len(block) // SAMPLE]
                if self._fulfilled(place, sample, early).all():
                    continue
            fulfilled = self._fulfilled(place, block, early)
            if not fulfilled.all():
                reason, broken = self._constraints[place][0], block[~fulfilled]
                below = prod(self._sizes[name] for name in self._order[level:])
                self._rejected[reason] += len(broken) * below
                self._examples.setdefault(reason, self._config(broken[0]))
                block = block[fulfilled]
        return block

    def _fulfilled(self, place: int, block: Codes, early: bool) -> NDArray[np.bool_]:
        """Whether each combination fulfils a constraint. An early check, before all that it reads
        is set, finds those that never will."""
        predicate, reads = self._constraints[place][1], self._reads[place]
        order, count = self._order[: block.shape[1]], len(reads)
        table = ConfigTable(self._family, {name: self._parameters[name] for name in order}, block)
        if isinstance(predicate, Expression):
            firsts, groups = _grouped(table, reads)
            results = list[bool]()
            try:
                for values in _rows(table, firsts, reads):
                    results.append(bool(predicate.function(*values)))
            except Exception:
                self._fails(place, block[firsts[len(results)]])
            return np.array(results, bool)[groups]

        def asked(values: Observed) -> bool:
            try:
                return bool(predicate(MappingProxyType(values)))
            except _UnsetError:
                return True
            except Exception:
                if not early:
                    self._fails(place, block[values.row])
                return True

        groups, answers = _called(asked, table, reads, self._parameters)
        if not {*[*reads][count:]} <= {*order}:
            raise _MisplacedError
        return np.array(answers, bool)[groups]

    def _fails(self, place: int, codes: Codes) -> None:
        """Lets a constraint wait for those in front of it, which may reject what it fails for.

        Raises:
            UsageError: if it did wait.
        """
        if place not in self._waiting:
            self._waiting.add(place)
            raise _MisplacedError
        reason, predicate = self._constraints[place]
        evaluate(f"constraint {reason!r}", predicate, self._config(codes))

    def _config(self, codes: Codes) -> Config:
        """The first configuration with these values of the parameters that are set."""
        places = dict(zip(self._order, codes.tolist(), strict=False))
        pairs = ((name, own[places.get(name, 0)]) for name, own in self._parameters.items())
        return Config(self._family, tuple(pairs))


class Observed(dict[str, Value]):
    """The values in a row of a table, which notes in `reads` those that it lacks when they are
    read. Reading one of `names` that is not in the table raises an `_UnsetError`."""

    # Those of a dict would see only what was read.
    get, keys, values, items = Mapping.get, Mapping.keys, Mapping.values, Mapping.items  # type: ignore[assignment]

    def __init__(self, table: ConfigTable, names: Collection[str], reads: dict[str, None]) -> None:
        self._table, self._names, self._reads = table, names, reads
        self.row = 0

    def __missing__(self, name: str) -> Value:
        if name not in self._names:
            raise KeyError(name)
        self._reads[name] = None
        if name not in self._table.values:
            raise _UnsetError
        config: Config = self._table[self.row]
        return config.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __or__(self, values: Any) -> Any:
        return self.copy() | values

    def copy(self) -> dict[str, Value]:
        return {name: self[name] for name in self}


def _reads(predicate: Predicate, first: ConfigTable) -> dict[str, None]:
    """The parameters that a text names, or that a function reads of the first combination."""
    if isinstance(predicate, Expression):
        return dict.fromkeys(predicate.reads)
    reads = dict[str, None]()
    with suppress(Exception):
        predicate(MappingProxyType(Observed(first, first.values, reads)))
    return reads


class _ObservedConfig(Config):
    """A configuration whose values are observed."""

    def __init__(self, config: Config, values: Observed) -> None:
        super().__init__(config.family, config.params)
        self.__dict__["_observed"] = values

    @property
    def values(self) -> Any:
        return self.__dict__["_observed"]


def results_of(
    function: Callable[[Config], T], configs: ConfigTable
) -> tuple[NDArray[np.intp], list[T]]:
    """Calls a function once for all configurations alike in the values that it reads. Returns for
    each configuration the index of its result, and the results."""

    def called(values: Observed) -> T:
        return function(_ObservedConfig(configs[values.row], values))

    return _called(called, configs, {}, configs.values)


def _called(
    function: Callable[[Observed], T],
    table: ConfigTable,
    reads: dict[str, None],
    names: Collection[str],
) -> tuple[NDArray[np.intp], list[T]]:
    """Calls a function of values once for all rows of a table alike in what it reads: `reads`, to
    which it adds. `names` are all parameters, among them those that the table lacks."""
    observed, count = Observed(table, names, reads), -1
    while count != len(reads):
        count = len(reads)
        own = [name for name in reads if name in table.values]
        firsts, groups = _grouped(table, own)
        results = []
        for observed.row, values in zip(firsts.tolist(), _rows(table, firsts, own), strict=True):
            observed.update(zip(own, values, strict=True))
            results.append(function(observed))
            if count != len(reads):
                break
    return groups, results


def _grouped(table: ConfigTable, names: Iterable[str]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first of all rows alike in some parameters, and for each row the number of its group."""
    ranks, count = np.zeros(len(table), np.int64), 1
    for column, (name, values) in enumerate(table.values.items()):
        if name in names:
            if count * len(values) > 2**62:
                ranks, count = np.unique(ranks, return_inverse=True)[1], len(table)
            ranks, count = ranks * len(values) + table.codes[:, column], count * len(values)
    return np.unique(ranks, return_index=True, return_inverse=True)[1:]


def _rows(table: ConfigTable, rows: NDArray[np.intp], names: Collection[str]) -> Iterable[Any]:
    columns = dict(zip(table.values, table.codes[rows].T, strict=True))
    values = [map(table.values[name].__getitem__, columns[name].tolist()) for name in names]
    return zip(*values, strict=True) if values else [()] * len(rows)
