"""The search space of a user kernel: its parameters with their values, and its constraints.

`legal_space` sets one parameter after another, and checks a constraint as soon as the parameters
that it reads are set, so that it rejects whole branches at once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
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
"""Combinations of some parameters that are checked: texts take about 10 s for them."""
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


def legal_space(
    family: str, parameters: Mapping[str, Sequence[Value]], constraints: Mapping[str, Predicate]
) -> LegalSpace:
    """Enumerates the legal combinations of parameter values.

    Raises:
        UsageError: if a constraint fails, or there are too many combinations.
    """
    return _Enumeration(family, parameters, constraints).space()


class _MisplacedError(Exception):
    """A constraint was checked too early: it reads more parameters, or it fails."""


class _UnsetError(BaseException):
    """A function reads a parameter that is not set; an `except Exception` in it passes this on."""


class _Enumeration:
    """An enumeration of legal combinations.

    A block of combinations is an array of codes, a column for each and a row for each parameter
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
        arrays = {name: np.array(values) for name, values in parameters.items()}
        self._firsts = {name: values[0] for name, values in parameters.items()}
        self._numbers = {name: array for name, array in arrays.items() if array.dtype.kind in "if"}
        # The parameters that each constraint reads, as far as they are known, in that order.
        self._reads = [dict.fromkeys(getattr(part, "reads", ())) for _, part in self._constraints]
        # The constraints that are checked after all in front of them.
        in_order = prod(self._sizes.values()) <= IN_ORDER
        self._waiting = set(range(len(self._reads)) if in_order else ())

    def space(self) -> LegalSpace:
        """The legal combinations."""
        while True:
            self._plan()
            try:
                blocks = [*self._walk(np.zeros((0, 1), np.uint8))]
                break
            except _MisplacedError:
                continue
        codes = np.hstack([np.zeros((len(self._order), 0), np.uint8), *blocks])
        codes = codes[[self._order.index(name) for name in self._parameters]]
        if len(codes):
            codes = codes[:, np.lexsort(codes[::-1])]
        configs = ConfigTable(self._family, self._parameters, codes.T)
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
        while pending:
            ready = [
                place for place in pending if place == pending[0] or place not in self._waiting
            ]
            missing = [self._reads[place].keys() - order.keys() for place in ready]
            counts = [prod(self._sizes[name] for name in names) for names in missing]
            place = ready[counts.index(min(counts))]
            pending.remove(place)
            for name in [name for name in self._reads[place] if name not in order]:
                if place not in self._waiting:
                    self._checks[len(order)].append((place, True))
                order[name] = None
            self._checks[len(order)].append((place, False))
        self._order = [*(order | dict.fromkeys(self._sizes))]

    def _walk(self, block: Codes) -> Iterator[Codes]:
        """The legal combinations that continue those of a block."""
        block = self._allowed(block)
        if len(block) == len(self._order):
            self._legal += block.shape[1]
            if self._legal > MOST:
                raise UsageError(
                    f"more than {MOST:,} configurations fulfil all constraints; give fewer values, "
                    "or further constraints"
                )
            yield block
            return
        size = self._sizes[self._order[len(block)]]
        step = max(1, BLOCK // size)
        for start in range(0, block.shape[1], step):
            part = block[:, start : start + step]
            values = np.tile(np.arange(size, dtype=np.uint8), part.shape[1])
            yield from self._walk(np.vstack([np.repeat(part, size, axis=1), values]))

    def _allowed(self, block: Codes) -> Codes:
        """The combinations that the constraints of their level allow; counts the others."""
        self._walked += block.shape[1]
        if self._walked > MOST_WALKED:
            raise UsageError(
                f"more than {MOST_WALKED:,} combinations of some parameters were checked; give "
                "fewer values, or constraints that read fewer parameters"
            )
        for place, early in self._checks[len(block)]:
            if not block.shape[1]:
                break
            fulfilled = self._fulfilled(place, block, early)
            if not fulfilled.all():
                reason, broken = self._constraints[place][0], block[:, ~fulfilled]
                below = prod(self._sizes[name] for name in self._order[len(block) :])
                self._rejected[reason] += broken.shape[1] * below
                self._examples.setdefault(reason, self._config(broken[:, 0]))
                block = block[:, fulfilled]
        return block

    def _fulfilled(self, place: int, block: Codes, early: bool) -> NDArray[np.bool_]:
        """Whether each combination fulfils a constraint, asked once for those alike in what it
        reads. An early check, before all of that is set, finds those that never will."""
        predicate, numbers = self._constraints[place][1], self._numbers
        if isinstance(predicate, Expression) and numbers.keys() >= {*predicate.reads}:
            if early:
                return np.ones(block.shape[1], bool)
            codes = {name: block[self._order.index(name)] for name in predicate.reads}
            results = predicate.vectorised({name: numbers[name][codes[name]] for name in codes})
            if results is not None:
                return np.broadcast_to(results, block.shape[1:])
        if early and block.shape[1] > SAMPLE:
            sample = block[:, :: block.shape[1] // SAMPLE]
            if self._asked(place, sample, early).all():
                return np.ones(block.shape[1], bool)
        return self._asked(place, block, early)

    def _asked(self, place: int, block: Codes, early: bool) -> NDArray[np.bool_]:
        """The answers of a constraint as a function; true for what an early check cannot tell."""
        predicate, unset = self._constraints[place][1], self._order[len(block) :]
        while True:
            reads = [name for name in self._order[: len(block)] if name in self._reads[place]]
            values = [self._parameters[name] for name in reads]
            codes = block[[self._order.index(name) for name in reads]]
            columns, groups = grouped(codes, [self._sizes[name] for name in reads])
            observed = Observed(self._firsts, unset=unset if early else ())
            view, results = MappingProxyType(observed), np.ones(len(columns), bool)
            for index, row, code, complete in _changes(codes[:, columns]):
                if row >= 0:
                    observed[reads[row]] = values[row][code]
                if not complete:
                    continue
                try:
                    results[index] = bool(predicate(view))
                except _UnsetError:
                    continue
                except Exception:
                    if early:
                        continue
                    if observed.missed:
                        break
                    self._fails(place, block[:, columns[index]])
                    raise
            if not observed.missed:
                return np.asarray(results[groups])
            self._reads[place] |= observed.missed
            if not observed.missed.keys() <= {*self._order[: len(block)]}:
                raise _MisplacedError

    def _fails(self, place: int, codes: Codes) -> None:
        """Lets a constraint wait for those in front of it, which may reject what it fails for.

        Raises:
            UsageError: if it did wait.
        """
        if place not in self._waiting:
            self._waiting.add(place)
            raise _MisplacedError
        reason, predicate = self._constraints[place]
        evaluate(f"constraint {reason!r}", lambda p: bool(predicate(p)), self._config(codes))

    def _config(self, codes: Codes) -> Config:
        """The first configuration with these values of the parameters that are set."""
        places = dict(zip(self._order, codes.tolist(), strict=False))
        pairs = ((name, own[places.get(name, 0)]) for name, own in self._parameters.items())
        return Config(self._family, tuple(pairs))


BLOCK = 2**18
"""Combinations that are checked at once."""

SAMPLE = 64
"""Combinations of a block on which an early check has to find one to go on."""


def _changes(codes: Codes) -> Iterable[tuple[int, int, int, bool]]:
    """The changes from each column to the next: its index, a row with its new code, and whether the
    column has no further change. Without rows the row is -1."""
    if not len(codes):
        return [(0, -1, 0, True)]
    changed = np.ones(codes.shape, bool)
    changed[:, 1:] = codes[:, 1:] != codes[:, :-1]
    columns, rows = np.nonzero(changed.T)
    complete = np.append(columns[1:] != columns[:-1], True)
    lists = columns, rows, codes[rows, columns], complete
    return zip(*(own.tolist() for own in lists), strict=True)


def grouped(codes: Codes, sizes: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The first index of each different column, and for each column the number of its group.

    Args:
        codes: the columns.
        sizes: for each row, the number of its codes.
    """
    ranks, count = np.zeros(codes.shape[1], np.int64), 1
    for row, size in zip(codes, sizes, strict=True):
        if count * size > 2**62:
            ranks = np.unique(ranks, return_inverse=True)[1]
            count = codes.shape[1]
        ranks, count = ranks * size + row, count * size
    return np.unique(ranks, return_index=True, return_inverse=True)[1:]


class Observed(dict[str, Value]):
    """Values of parameters. One that is read and lacking comes from `defaults` and is noted as
    missed, or raises an `_UnsetError` if its name is among `unset`."""

    def __init__(
        self,
        defaults: Mapping[str, Value],
        names: Iterable[str] = (),
        unset: Collection[str] = (),
    ) -> None:
        super().__init__((name, defaults[name]) for name in names)
        self._defaults, self._unset = defaults, unset
        self.missed: dict[str, None] = {}

    def __missing__(self, name: str) -> Value:
        if name in self._unset:
            raise _UnsetError
        value = self._defaults[name]
        self.missed[name] = None
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._defaults)

    def __len__(self) -> int:
        return len(self._defaults)

    def __contains__(self, name: object) -> bool:
        return name in self._defaults

    def __or__(self, values: Any) -> Any:
        return self.copy() | values

    def get(self, name: str, default: object = None) -> Any:
        return self[name] if name in self._defaults else default

    def keys(self) -> Any:
        return self._defaults.keys()

    def values(self) -> Any:
        return self.copy().values()

    def items(self) -> Any:
        return self.copy().items()

    def copy(self) -> dict[str, Value]:
        return {name: self[name] for name in self}


class _ObservedConfig(Config):
    """A configuration that notes which of its values are read."""

    def __init__(self, config: Config, names: Iterable[str]) -> None:
        super().__init__(config.family, config.params)
        self.__dict__["_observed"] = Observed(dict(config.params), names)

    @property
    def values(self) -> Observed:
        observed: Observed = self.__dict__["_observed"]
        return observed


def results_of(
    function: Callable[[Config], T], configs: ConfigTable
) -> tuple[NDArray[np.intp], list[T]]:
    """Calls a function once for all configurations alike in the values that it reads. Returns for
    each configuration the index of its result, and the results."""
    sizes, reads = [*map(len, configs.values.values())], set[str]()
    while True:
        rows = [row for row, name in enumerate(configs.values) if name in reads]
        firsts, groups = grouped(configs.codes[:, rows].T, [sizes[row] for row in rows])
        results, missed = dict[int, T](), set[str]()
        for group in np.argsort(firsts).tolist():
            config = _ObservedConfig(configs[firsts[group]], reads)
            results[group] = function(config)
            missed |= config.values.missed.keys()
        if not missed:
            return groups, [results[group] for group in range(len(firsts))]
        reads |= missed
