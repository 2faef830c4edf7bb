"""All records that serve a device: the user's store first, then the shipped ones."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path

from autotune import files
from autotune.device import Device, same_model
from autotune.files import limits
from autotune.files.decoding import parse
from autotune.problem import Problem
from autotune.records import ranges, shipped
from autotune.records.ordered import OrderedRecord
from autotune.records.ranges import Range
from autotune.records.record import Record
from autotune.records.standing import BEST_FIRST, first_of_best, first_of_each_problem
from autotune.records.store import Store


@dataclass(frozen=True)
class Records:
    """The records of the user's store and of the package, as look-ups take them.

    Measured records stand before replayed ones, and these before predicted ones; of one evidence,
    searches before quick races; of equals, those in the store before shipped ones. What the store
    holds of the same model under another name counts too.
    """

    store: Store

    @classmethod
    def shipped_only(cls) -> Records:
        """The shipped records alone."""
        return cls(Store(Path("/nonexistent")))

    def load(self, device: Device, problem: Problem) -> Record | None:
        """The record of the problem; None if there is none."""
        own = self.store.load(device, problem)
        return first_of_best(chain((own,), self._elsewhere(device, problem)))

    def records(self, device: Device) -> list[Record]:
        """A record of every recorded problem on the device's model, by problem."""
        layers = (self.store.records(name) for name in (device, *self.namesakes(device)))
        return _by_problem(first_of_each_problem(*layers, shipped.records(device)))

    def ranges(self, device: Device) -> tuple[Range, ...]:
        """The tuned ranges of the device's model: measured before replayed before predicted, and
        the store's first."""
        return _by_evidence((*ranges.load(self.store.root, device), *shipped.ranges(device)))

    def invariant_ranges(self, device: Device) -> tuple[Range, ...]:
        """The batch-invariant ranges of the device: measured before replayed before predicted."""
        return _by_evidence(ranges.load_invariant(self.store.root, device))

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
            with suppress(OSError), os.scandir(folder) as files_of:
                names = (entry.name for entry in files_of if entry.name.endswith(".json"))
                read = (_device_in(folder / name) for name in names)
                if (device := next(filter(None, read), None)) is not None:
                    yield device


def _by_evidence(tuned: Iterable[Range]) -> tuple[Range, ...]:
    return tuple(sorted(tuned, key=lambda span: BEST_FIRST.index(span.evidence)))


def _by_problem(records: Iterable[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.problem)


@lru_cache(maxsize=256)
def _device_in(path: Path) -> Device | None:
    """The device in a record's file, which never changes; None if the file is unreadable."""
    try:
        return Device.from_json(parse(files.read(path, limits.RECORD))["device"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # reading the record itself warns
