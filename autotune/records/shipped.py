"""Records that come with the package, and the user's own before them.

    autotune/data/wisdom/nvidia-h100-80gb-hbm3.json    a bundle for each model of GPU

A record serves every card of its model. Cards are told apart by their limits and rates: the same
GPU has several names, and the driver counts the memory of two cards alike a little differently.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autotune import settings
from autotune.device import Device
from autotune.problem import Problem
from autotune.records import Record, Store, bundle, ranges
from autotune.records.bundle import Bundle
from autotune.records.ranges import Range

# What a kernel has to fit into, and what decides which one is fastest; not the name, nor how much
# memory there is, which of one model comes in a few versions.
SAME = (
    *("compute_capability", "sms", "warp_size", "registers_per_block", "registers_per_sm"),
    *("shared_per_block", "shared_per_block_optin", "shared_per_sm", "threads_per_block"),
    *("threads_per_sm", "blocks_per_sm"),
)
NEARLY = ("l2_bytes", "sm_clock", "memory_bandwidth")
NEAR = 0.03
"""Rates that differ by less are taken as those of one model."""


def alike(one: Device, other: Device) -> bool:
    """Whether two devices are of one model, so that records of one serve the other."""
    same = all(getattr(one, name) == getattr(other, name) for name in SAME)
    return same and all(_close(getattr(one, name), getattr(other, name)) for name in NEARLY)


def related(one: Device, other: Device) -> bool:
    """Whether two devices are of one architecture and run the same programs."""
    return one.compute_capability == other.compute_capability


def records(device: Device) -> tuple[Record, ...]:
    """The shipped records of the device's model, by problem."""
    found = {record.problem: record for record in _shipped() if alike(record.device, device)}
    return tuple(found[problem] for problem in sorted(found))


@dataclass(frozen=True)
class Records:
    """All records that serve a device: the user's own, and the shipped ones.

    Of one problem the user's record goes first, unless it is only predicted. What the user has of a
    card of the same model under another name counts as the user's.
    """

    store: Store

    def load(self, device: Device, problem: Problem) -> Record | None:
        """The record of the problem; None if there is none."""
        own = self.store.load(device, problem)
        if own is not None and own.evidence != "predicted":
            return own
        namesakes = (self.store.load(other, problem) for other in self._namesakes(device))
        shipped = (record for record in records(device) if record.problem == problem)
        found = (record for record in (*namesakes, *shipped) if record is not None)
        return next((record for record in found if record.evidence != "predicted"), own)

    def records(self, device: Device) -> list[Record]:
        """A record of every problem that is known on the device's model, by problem."""
        return self._best(
            self.store.records(device),
            *(self.store.records(other) for other in self._namesakes(device)),
            records(device),
        )

    def related(self, device: Device) -> list[Record]:
        """Those of other models of the device's architecture, by problem: of each the first."""

        def other(found: Device) -> bool:
            return related(found, device) and not alike(found, device)

        return self._best(
            *(self.store.records(found) for found in self._others() if other(found)),
            (record for record in _shipped() if other(record.device)),
        )

    def ranges(self, device: Device) -> tuple[Range, ...]:
        """The tuned ranges of the device's model, the user's first."""
        own = ranges.load(self.store.root, device)
        shipped = (one for found in _bundles() for one in found.ranges)
        return (*own, *(one for one in shipped if alike(one.device, device)))

    def _namesakes(self, device: Device) -> Iterator[Device]:
        """Devices of the same model that the store has records of under another name."""
        for other in self._others():
            if other.slug != device.slug and alike(other, device):
                yield other

    def _others(self) -> Iterator[Device]:
        """The devices that the store has records of."""
        for folder in sorted((self.store.root / Record.FOLDER).glob("*")):
            found = (_device_in(path) for path in sorted(folder.glob("*.json")))
            if (device := next(filter(None, found), None)) is not None:
                yield device

    def _best(self, *layers: Iterable[Record]) -> list[Record]:
        """Of each problem the record of the first layer that has more than a prediction."""
        found: dict[Problem, Record] = {}
        for layer in layers:
            for record in layer:
                known = found.get(record.problem)
                if known is None or (
                    known.evidence == "predicted" and record.evidence != "predicted"
                ):
                    found[record.problem] = record
        return [found[problem] for problem in sorted(found)]


def _close(one: float, other: float) -> bool:
    return abs(one - other) <= NEAR * max(one, other)


def _shipped() -> Iterator[Record]:
    for found in _bundles():
        yield from found.records


def _bundles() -> list[Bundle]:
    return [_bundle(path) for path in sorted(settings.wisdom_dir().glob("*.json"))]


@lru_cache(maxsize=16)
def _bundle(path: Path) -> Bundle:
    """The file, read once in a process; empty, with a warning, if it is broken."""
    try:
        return bundle.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
        return Bundle(())


@lru_cache(maxsize=256)
def _device_in(path: Path) -> Device | None:
    """The device of a record's file, which is always of that one; None if it cannot be read."""
    try:
        return Device.from_json(json.loads(path.read_bytes())["device"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # whoever reads the record warns of it
