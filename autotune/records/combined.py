"""All records that serve a device: the user's store first, then the shipped ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeVar

from autotune import files
from autotune.device import Device, same_architecture, same_model
from autotune.files import limits
from autotune.files.decoding import parse
from autotune.problem import Problem
from autotune.records import ranges, shipped
from autotune.records.ordered import OrderedRecord
from autotune.records.ranges import Range
from autotune.records.record import Record
from autotune.records.store import Store
from autotune.runners.base import Evidence


@dataclass(frozen=True)
class Records:
    """The records of the user's store and of the package, as look-ups take them.

    A problem's record in the store stands before a shipped one, unless it is only predicted, or of
    a quick race where the shipped one is of a search. What the store holds of the same model under
    another name counts too.
    """

    store: Store

    @classmethod
    def shipped_only(cls) -> Records:
        """The shipped records alone."""
        return cls(Store(Path("/nonexistent")))

    def load(self, device: Device, problem: Problem) -> Record | None:
        """The record of the problem; None if there is none."""
        own = self.store.load(device, problem)
        if own is not None and _standing(own) == SEARCHED:
            return own
        stored = [*filter(None, (own, *self._elsewhere(device, problem)))]
        return max(stored, key=_standing, default=None)

    def records(self, device: Device) -> list[Record]:
        """A record of every recorded problem on the device's model, by problem."""
        layers = (self.store.records(name) for name in (device, *self.namesakes(device)))
        return _by_problem(first_of_each_problem(*layers, shipped.records(device)))

    def related(self, device: Device) -> list[Record]:
        """A record of every problem recorded on other models of the architecture, by problem."""

        def is_related(candidate: Device) -> bool:
            return same_architecture(candidate, device) and not same_model(candidate, device)

        layers = (self.store.records(kin) for kin in self.devices() if is_related(kin))
        return _by_problem(first_of_each_problem(*layers, shipped.records_where(is_related)))

    def ranges(self, device: Device) -> tuple[Range, ...]:
        """The tuned ranges of the device's model, the store's first."""
        return (*ranges.load(self.store.root, device), *shipped.ranges(device))

    def invariant_ranges(self, device: Device) -> tuple[Range, ...]:
        """The batch-invariant ranges of the device."""
        return ranges.load_invariant(self.store.root, device)

    def ordered(self, device: Device, problem: Problem, order: str) -> OrderedRecord | None:
        """The record of a problem in an order of summation; None if there is none."""
        return self.store.ordered(device, problem, order)

    def _elsewhere(self, device: Device, problem: Problem) -> Iterator[Record | None]:
        """The problem's records under the device's other names, then the shipped one."""
        for namesake in self.namesakes(device):
            yield self.store.load(namesake, problem)
        yield shipped.record(device, problem)

    def namesakes(self, device: Device) -> Iterator[Device]:
        """Devices of the same model that the store has records of under another name."""
        for candidate in self.devices():
            if candidate.slug != device.slug and same_model(candidate, device):
                yield candidate

    def devices(self) -> Iterator[Device]:
        """The devices that the store has records of."""
        for folder in sorted((self.store.root / Record.FOLDER).glob("*")):
            read = (_device_in(path) for path in sorted(folder.glob("*.json"), key=str))
            if (device := next(filter(None, read), None)) is not None:
                yield device


PREDICTED, RACED, SEARCHED = range(3)


class _Judged(Protocol):
    """A record, or its digest."""

    @property
    def problem(self) -> Problem: ...

    @property
    def evidence(self) -> Evidence: ...

    @property
    def quick(self) -> bool: ...


J = TypeVar("J", bound=_Judged)


def _standing(record: _Judged) -> int:
    """Which of two records of a problem stands: the greater, of equals the first."""
    if record.evidence == "predicted":
        return PREDICTED
    return RACED if record.quick else SEARCHED


def first_of_each_problem(*layers: Iterable[J]) -> list[J]:
    """Each problem's record of the first layer that has the best of it."""
    chosen: dict[Problem, J] = {}
    for record in (record for layer in layers for record in layer):
        earlier = chosen.get(record.problem)
        if earlier is None or _standing(earlier) < _standing(record):
            chosen[record.problem] = record
    return [*chosen.values()]


def _by_problem(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.problem)


@lru_cache(maxsize=256)
def _device_in(path: Path) -> Device | None:
    """The device in a record's file, which never changes; None if the file is unreadable."""
    try:
        return Device.from_json(parse(files.read(path, limits.RECORD))["device"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # reading the record itself warns
