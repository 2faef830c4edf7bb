"""Objectives: what a search minimises and a look-up chooses by.

Each is a value of one table. It says what it reads of a measurement, how it ranks entries, what has
to be metered for it, and what tables call it. A new objective is one more row.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeVar

from autotune.device import Device
from autotune.errors import one_of
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import TIE, Measurement, Timed, TimeEstimate, tied
from autotune.problem import Problem
from autotune.problem.words import FrozenWord
from autotune.roofline import least_hot_seconds, least_seconds

if TYPE_CHECKING:
    from autotune.problem.words import WordField

ObjectiveText = Literal["hot", "cold", "energy"]
"""The words of the objectives, as the command line and public arguments take them."""


class Ranked(Protocol):
    """A configuration with all its figures, such as a record's `Entry`."""

    @property
    def config(self) -> Config: ...

    @property
    def measurement(self) -> Measurement: ...

    @property
    def resources(self) -> Resources: ...


E = TypeVar("E", bound=Ranked)


@dataclass(frozen=True)
class BestTimes:
    """The best hot and cold medians so far, in microseconds; infinite if there is none."""

    hot_us: float = math.inf
    cold_us: float = math.inf

    def of(self, objective: Objective) -> float:
        """The best of the time that an objective compares trials by."""
        return self.cold_us if objective.flushed else self.hot_us


def winner(contenders: Iterable[E], timed: Callable[[E], Timed] = attrgetter("measurement")) -> E:
    """The fastest contender, or the one tied with it that needs the fewest resources of an SM.

    The fastest has the least sum of time and spread. Fewer registers a block come first among the
    tied, then less shared memory, then the configuration's text, so neither noise nor the order of
    the contenders decides. A library's kernel, whose resources are not known, comes last.

    Args:
        contenders: at least one.
        timed: the time of a contender to compare by.

    Raises:
        ValueError: if there are no contenders.
    """
    pool = list(contenders)
    # With the spread added, a few widely scattered samples do not win by luck.
    fastest = min(
        pool,
        key=lambda contender: (
            timed(contender).time_us + timed(contender).spread_us,
            *_demand(contender),
        ),
    )
    rivals = [contender for contender in pool if tied(timed(contender), timed(fastest))]
    return min(rivals, key=_demand)


def _demand(contender: Ranked) -> tuple[bool, int, int, str]:
    resources = contender.resources
    registers = resources.registers * resources.threads
    return not resources.threads, registers, resources.shared, str(contender.config)


class Objective(FrozenWord):
    """A figure to minimise. Its text is its word: `hot`, `cold` or `energy`.

    Attributes:
        label: the name of its time in tables.
        summary: the figure in a few words, for help texts.
        value: the figure in a measurement, in `unit`; None if it was not measured.
        unit: `us` or `J`.
        estimate: the time that trials are compared by, with its spread; None if it was not
            measured.
        flushed: whether L2 is flushed before each run, so that operands come from memory.
        metered: whether energies have to be measured.
        fields: the fields of a measurement that hold the figure.
        time: the time that trials are compared by while searching: itself, unless the figure is
            measured of the fastest alone.
    """

    __slots__ = (
        "_best",
        "estimate",
        "fields",
        "flushed",
        "label",
        "metered",
        "summary",
        "time",
        "unit",
        "value",
    )

    _best: Callable[[Sequence[Any]], Any]
    estimate: Callable[[Measurement], TimeEstimate | None]
    fields: tuple[str, ...]
    flushed: bool
    label: str
    metered: bool
    summary: str
    time: Objective
    unit: str
    value: Callable[[Measurement], float | None]

    def __new__(
        cls,
        word: ObjectiveText,
        *,
        label: str,
        summary: str,
        fields: tuple[str, ...],
        value: Callable[[Measurement], float | None],
        best: Callable[[Sequence[Any]], Any],
        estimate: Callable[[Measurement], TimeEstimate | None],
        unit: str = "us",
        time: Objective | None = None,
        flushed: bool = False,
        metered: bool = False,
    ) -> Objective:
        """A row of the table; the functions read a measurement and choose among entries."""
        self = super().__new__(cls, word)
        attributes = {
            **{"_best": best, "estimate": estimate, "value": value, "fields": fields},
            **{"flushed": flushed, "label": label, "metered": metered, "unit": unit},
            "summary": summary,
            "time": self if time is None else time,
        }
        self._hold(attributes)
        return self

    def __reduce__(self) -> tuple[Callable[[str], Objective], tuple[str]]:
        """A copy, also that of another process, is the row of the table."""
        return objective_named, (str(self),)

    @property
    def is_time(self) -> bool:
        """Whether the figure is a time, so that a prediction of times serves it."""
        return self.time is self

    @property
    def second(self) -> Objective:
        """The time beside the objective's own: hot for `COLD`, cold for the others."""
        return HOT if self.flushed else COLD

    def best(self, entries: Sequence[E]) -> E | None:
        """The entry to run: the least figure, or an entry that is tied with it and leaner or faster
        hot. None if no entry has the figure."""
        chosen: E | None = self._best(entries)
        return chosen

    def beats(self, measurement: Measurement, rival: Measurement) -> bool | None:
        """Whether a figure is less than a rival's, and not tied; None if either is missing."""
        less, more = self.value(measurement), self.value(rival)
        if less is None or more is None:
            return None
        return less < more and more - less > TIE * less

    def least_seconds(self, problem: Problem, device: Device) -> float:
        """The roofline's least time of a run. In hot runs L2 may hold a part of the matrices."""
        return (least_seconds if self.flushed else least_hot_seconds)(problem, device)

    def suffix(self, before: str) -> str:
        """The word after `before`, such as `.cold`; empty for the default objective."""
        return "" if self is HOT else f"{before}{self}"


def _hot(measured: Measurement) -> TimeEstimate:
    return TimeEstimate(measured.time_us, measured.spread_us)


def _cold(measured: Measurement) -> TimeEstimate | None:
    if measured.cold_us is None:
        return None
    return TimeEstimate(measured.cold_us, measured.cold_spread_us or 0.0)


def _fastest_cold(entries: Sequence[E]) -> E | None:
    """The fastest entry with a flushed L2; among tied entries the hot winner, else the leanest."""
    cold = {
        entry.config: estimate
        for entry in entries
        if (estimate := _cold(entry.measurement)) is not None
    }
    if not cold:
        return None
    hot = winner(entries)
    fastest = min(cold.values(), key=lambda estimate: estimate.time_us)
    if hot.config in cold and tied(cold[hot.config], fastest):
        return hot
    timed = [entry for entry in entries if entry.config in cold]
    return winner(timed, lambda entry: cold[entry.config])


def _least_energy(entries: Sequence[E]) -> E | None:
    """The entry with the least energy, spread included: the hot winner where it is tied."""
    metered = [
        (energy.joules + energy.spread_j, place, energy)
        for place, entry in enumerate(entries)
        if (energy := entry.measurement.energy) is not None
    ]
    if not metered:
        return None
    _, place, least = min(metered, key=lambda each: each[:2])
    hot = winner(entries)
    own = hot.measurement.energy
    return hot if own is not None and own.tied(least) else entries[place]


HOT: Final = Objective(
    "hot",
    label="time",
    summary="inputs as the last run left them",
    fields=("time_us", "spread_us"),
    value=lambda measured: measured.time_us,
    best=lambda entries: winner(entries) if entries else None,
    estimate=_hot,
)
"""The time with inputs as the last run left them in L2: the default."""

COLD: Final = Objective(
    "cold",
    label="cold time",
    summary="L2 flushed",
    fields=("cold_us", "cold_spread_us"),
    value=lambda measured: measured.cold_us,
    best=_fastest_cold,
    estimate=_cold,
    flushed=True,
)
"""The time with L2 flushed before each run."""

ENERGY: Final = Objective(
    "energy",
    label="time",
    summary="joules of the fastest",
    fields=("energy",),
    value=lambda measured: None if measured.energy is None else measured.energy.joules,
    best=_least_energy,
    estimate=_hot,
    unit="J",
    time=HOT,
    metered=True,
)
"""The energy of a run, measured for the fastest hot configurations."""

OBJECTIVES: Final = (HOT, COLD, ENERGY)
"""The table of objectives, the default first."""

TIMES: Final = tuple(objective for objective in OBJECTIVES if objective.is_time)
"""The objectives that are times."""


def objective_named(name: str, among: Sequence[Objective] = OBJECTIVES) -> Objective:
    """The objective with that word.

    Raises:
        UsageError: if there is none.
    """
    return one_of("objective", name, among)


def time_objective(cold: bool) -> Objective:
    """The objective of a call that states whether its operands are cold."""
    return COLD if cold else HOT


if TYPE_CHECKING:
    ObjectiveField = WordField[ObjectiveText | Objective, Objective]
    DEFAULT_OBJECTIVE = ObjectiveField()
else:
    ObjectiveField, DEFAULT_OBJECTIVE = Objective, HOT
