"""Which of several records of a problem stands: measured before replayed before predicted."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar, get_args

from autotune.measure.measurement import Evidence
from autotune.problem import Problem

BEST_FIRST: tuple[Evidence, ...] = get_args(Evidence)


class Recorded(Protocol):
    """A record, or its digest."""

    @property
    def problem(self) -> Problem: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def quick(self) -> bool: ...


T = TypeVar("T", bound=Recorded)


def weakness(record: Recorded) -> tuple[int, bool]:
    """The sort key of records of a problem, the best first: by evidence, then searches before
    quick races."""
    return BEST_FIRST.index(record.evidence), record.quick


def first_of_best(records: Iterable[T | None]) -> T | None:
    """The first of the records with the least weakness; it asks for no more than that takes."""
    best: T | None = None
    for record in records:
        if record is not None and (best is None or weakness(record) < weakness(best)):
            best = record
        if best is not None and weakness(best) == (0, False):
            break
    return best


def first_of_each_problem(*layers: Iterable[T]) -> list[T]:
    """Each problem's record of the first layer that has the best of it."""
    chosen: dict[Problem, T] = {}
    for record in (record for layer in layers for record in layer):
        earlier = chosen.get(record.problem)
        if earlier is None or weakness(record) < weakness(earlier):
            chosen[record.problem] = record
    return [*chosen.values()]
