"""The records and the quarantine under a directory, one JSON file for each record.

    <root>/records/<device>/4096x4096x4096-f32-nn.json            measured
    <root>/records/<device>/4096x4096x4096-f32-nn.replayed.json   from a recording
    <root>/records/<device>/4096x4096x4096-f32-nn.predicted.json  from the cost model
    <root>/families/<device>/4096x4096x4096-f32-nn-tiled.json     a search of one family, measured
    <root>/ordered/<device>/16x4096x4096-bf16-nt-5e0c27e1a95d.json   in one order of summation
    <root>/kernels/<device>/transpose-4f0c27e1a95d8b36.json       a user kernel, measured
    <root>/quarantine/<device>.jsonl                              candidates that crashed or hung

A file that is not a readable record, or has a wrong checksum, counts as absent, with a warning. It
is never lost: before a record replaces it, it is copied to `<file>.broken-<n>`. A record made with
another driver or compiler, or with entries of other kernel sources, is copied to
`<file>.superseded-<n>`. `merging` says how two records of one problem become one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from autotune import files
from autotune.device import Device, same_model
from autotune.families.config import Config
from autotune.files import limits
from autotune.files.decoding import convert, parse
from autotune.measure.measurement import Evidence
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.records import codec, ranges, shipped
from autotune.records.kernel_record import KernelRecord
from autotune.records.merging import (
    HasOrigin,
    R,
    agreed_sources,
    made_from,
    merge,
    reconcile,
    same_tools,
)
from autotune.records.ranges import Range
from autotune.records.record import (
    BEST_FIRST,
    ORDERED,
    FamilyRecord,
    Record,
    TuningRecord,
    first_of_best,
    first_of_each_problem,
    folder_of,
    order_slug,
    paths_of,
)
from autotune.settings import warn_once

KINDS: dict[str, type[TuningRecord]] = {
    Record.FOLDER: Record,
    FamilyRecord.FOLDER: FamilyRecord,
    ORDERED: FamilyRecord,
    KernelRecord.FOLDER: KernelRecord,
}
"""The records in each folder."""

MergeOutcome = Literal["new", "better", "equal", "skipped"]
"""The effect of merging another store's record: `new`, none was present; `better`, the present
record was improved or replaced; `equal`, nothing changed; `skipped`, the present record stayed
although its origin differs."""


@dataclass(frozen=True)
class Store:
    """The records and the quarantine under a directory, which need not exist yet.

    Any number of processes may use it at once. Devices are told apart by their slug, so a record
    serves every card of its model. Predictions are told apart by the device's numbers too.
    """

    root: Path

    def path(self, device: Device, problem: Problem, evidence: Evidence = "measured") -> Path:
        """The file of a problem's record."""
        return self._path(Record.FOLDER, device, problem.slug, evidence)

    def path_of(self, record: TuningRecord) -> Path:
        """The file of a record."""
        return self._path(record.folder, record.device, record.slug, record.evidence)

    def save(self, record: R, failed: Collection[Config] = (), timed: Collection[Config] = ()) -> R:
        """Merges the record into the one on disk (see `merging.merge`) and returns the result.

        Args:
            record: the record of a tuning run.
            failed: configurations that failed in that run, which an earlier record may have.
            timed: configurations that the run timed. Their times in an earlier record of another
                driver or compiler are dropped.

        Raises:
            CacheError: if it cannot be written; the file on disk is then unchanged.
        """
        path = self.path_of(record)
        with files.locked(path.parent):
            old = self._previous(path, type(record))
            merged = merge(old, record, failed, timed)
            if old is not None:
                self._set_aside(path, old, merged, record.provenance.source)
            files.write(path, codec.dumps(merged))
        return merged

    def adopt(self, record: R, today: HasOrigin) -> MergeOutcome:
        """Merges a record of another store into the one on disk (see `merging.reconcile`).

        Args:
            record: the record of the other store.
            today: what this machine would measure with; empty where that is unknown.

        Raises:
            CacheError: if it cannot be written; the file on disk is then unchanged.
        """
        path = self.path_of(record)
        with files.locked(path.parent):
            old = self._previous(path, type(record))
            if old is None:
                files.write(path, codec.dumps(merge(None, record)))
                return "new"
            source, merged = agreed_sources(old, record, today), reconcile(old, record, today)
            if merged != old:
                self._set_aside(path, old, merged, source)
                files.write(path, codec.dumps(merged))
                return "better"
        return "equal" if made_from(record, source) else "skipped"

    def exchange(self, old: TuningRecord, new: TuningRecord) -> bool:
        """Replaces a record by one with other sources (see `inventory.stamp`); False if the file
        holds another record by now.

        If the new one has fewer entries, the old one is copied to `.superseded-<n>` first.

        Raises:
            CacheError: if it cannot be written; the file on disk is then unchanged.
        """
        path = self.path_of(old)
        with files.locked(path.parent):
            if self._read(path, type(old)) != old:
                return False
            if len(new.entries) < len(old.entries):
                files.copy_aside(path, "superseded")
            files.write(path, codec.dumps(new))
        return True

    def withdraw(self, record: TuningRecord) -> Path:
        """Sets a record's file aside so that nothing runs its configurations; returns the copy.

        Raises:
            CacheError: if the file cannot be read, copied or deleted.
        """
        path = self.path_of(record)
        with files.locked(path.parent):
            aside = files.copy_aside(path, "superseded")
            files.delete(path)
        return aside

    def read(self, path: Path) -> TuningRecord | None:
        """The record in one of the store's files, None if the file is gone.

        Raises:
            ValueError: if the file is broken, or holds a record that belongs in another file.
        """
        return self._parse(path, KINDS[path.parent.parent.name])

    def load(
        self, device: Device, problem: Problem, evidence: Evidence | None = None
    ) -> Record | None:
        """The problem's record with the best evidence (measured, replayed, predicted).

        Args:
            device: where the problem runs.
            problem: the problem.
            evidence: the only kind of evidence to load; None for the best.

        Returns:
            The record, None if there is none. A broken file is skipped with a warning.
        """
        return self._first(Record, device, problem.slug, evidence)

    def family(
        self, device: Device, problem: Problem, family: str, evidence: Evidence | None = None
    ) -> FamilyRecord | None:
        """The record of a problem, as `load`, from searches of one kernel family."""
        return self._first(FamilyRecord, device, f"{problem.slug}-{family}", evidence)

    def ordered(self, device: Device, problem: Problem, order: str) -> FamilyRecord | None:
        """The record of a problem, as `load`, from searches in an order of summation."""
        slug = f"{problem.slug}-{order_slug(order)}"
        return self._first(FamilyRecord, device, slug, folder=ORDERED)

    def kernel(self, device: Device, call: KernelCall) -> KernelRecord | None:
        """The record of a user kernel's call; None if there is none.

        A broken file is skipped with a warning.
        """
        return self._first(KernelRecord, device, call.slug, "measured")

    def kernels(self, name: str) -> list[KernelRecord]:
        """All records that have that name (`KernelRecord.names`), in the order of their texts and
        devices. Broken files are skipped with a warning."""
        paths = sorted((self.root / KernelRecord.FOLDER).glob("*/*.json"))
        records = [record for path in paths if (record := self._read(path, KernelRecord))]
        named = [record for record in records if name in record.names]
        return sorted(named, key=lambda record: (record.title, record.device.name))

    def records(self, device: Device, paths: Iterable[Path] | None = None) -> list[Record]:
        """The record with the best evidence of every problem on the device, by problem: all, or
        those in some of its files."""
        return first_of_each_problem(self._all(Record, device, paths))

    def family_records(self, device: Device, family: str) -> list[FamilyRecord]:
        """The records of a device, as `records`, from searches of one kernel family."""
        records = self._all(FamilyRecord, device)
        return first_of_each_problem(record for record in records if record.family == family)

    def quarantine(self, device: Device, key: str, reason: str) -> None:
        """Records at once that the candidate `key` crashed or hung on the device.

        Raises:
            CacheError: if it cannot be written.
        """
        path = self._quarantine_path(device)
        with files.locked(path.parent):
            files.append_line(path, json.dumps({"key": key, "reason": reason}).encode())

    def quarantined(self, device: Device) -> dict[str, str]:
        """The candidates in quarantine, each with the latest reason."""
        path = self._quarantine_path(device)
        try:
            *lines, _torn = (_bytes(path, limits.QUARANTINE) or b"").split(b"\n")
        except ValueError as error:
            warn_once(f"{path}: skipped: {error}")
            return {}
        reasons: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            with suppress(ValueError):
                fields = convert(parse(line), _QuarantineFields, "line")
                reasons[fields.key] = fields.reason
                continue
            warn_once(f"{path}: line {number} is broken and skipped")
        return reasons

    def _first(
        self,
        kind: type[R],
        device: Device,
        slug: str,
        evidence: Evidence | None = None,
        *,
        folder: str | None = None,
    ) -> R | None:
        kinds = BEST_FIRST if evidence is None else (evidence,)
        paths = (self._path(folder or kind.FOLDER, device, slug, of) for of in kinds)
        records = (self._read(path, kind) for path in paths)
        return next((record for record in records if record is not None), None)

    def _all(
        self, kind: type[R], device: Device, paths: Iterable[Path] | None = None
    ) -> Iterator[R]:
        chosen = paths_of(self.root / kind.FOLDER, device) if paths is None else paths
        loaded = (self._read(path, kind) for path in chosen)
        return (record for record in loaded if record is not None)

    def _path(self, folder: str, device: Device, slug: str, evidence: Evidence) -> Path:
        suffix = "" if evidence == "measured" else f".{evidence}"
        return self.root / folder / folder_of(device, evidence) / f"{slug}{suffix}.json"

    def _quarantine_path(self, device: Device) -> Path:
        return self.root / "quarantine" / f"{device.slug}.jsonl"

    def _set_aside(self, path: Path, old: TuningRecord, new: TuningRecord, source: str) -> None:
        """Copies a record that is about to be replaced, if the new one has another driver or
        compiler, or lacks entries that are not compiled from the sources `source`."""
        if not (same_tools(old.provenance, new.provenance) and made_from(old, source)):
            files.copy_aside(path, "superseded")

    def _read(self, path: Path, kind: type[R]) -> R | None:
        """The record in the file; None if there is no file or, with a warning, a broken one."""
        try:
            return self._parse(path, kind)
        except ValueError as error:
            warn_once(f"{path}: skipped: {error}")
            return None

    def _previous(self, path: Path, kind: type[R]) -> R | None:
        """The record that is about to be replaced; a broken file is copied aside first."""
        try:
            return self._parse(path, kind)
        except ValueError as error:
            warn_once(f"{path}: kept as {files.copy_aside(path, 'broken').name}: {error}")
            return None

    def _parse(self, path: Path, kind: type[R]) -> R | None:
        """The record in the file, None if there is no file; ValueError if it is broken."""
        text = _bytes(path, limits.RECORD)
        if text is None:
            return None
        record = codec.loads(text)
        if not isinstance(record, kind) or self.path_of(record) != path:
            place = self.path_of(record).relative_to(self.root)
            content = f"{record.evidence} {record.title} of {record.device.name}"
            raise ValueError(f"holds {content}, whose file is {place}")
        return record


@dataclass(frozen=True)
class _QuarantineFields:
    key: Annotated[str, Meta(min_length=1)]
    reason: str


def _bytes(path: Path, limit: int) -> bytes | None:
    """The content of the file, None if there is none; ValueError if it cannot be read."""
    try:
        return files.read(path, limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


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
        return first_of_best(self._each(device, problem))

    def records(self, device: Device) -> list[Record]:
        """A record of every recorded problem on the device's model, by problem."""
        layers = (self.store.records(name) for name in (device, *self.namesakes(device)))
        return first_of_each_problem(*layers, shipped.records(device))

    def ranges(self, device: Device) -> tuple[Range, ...]:
        """The tuned ranges of the device's model, the store's first."""
        return *ranges.load(self.store.root, device), *shipped.ranges(device)

    def invariant_ranges(self, device: Device) -> tuple[Range, ...]:
        """The batch-invariant ranges of the device: measured before replayed before predicted."""
        tuned = ranges.load(self.store.root, device, invariant=True)
        return tuple(sorted(tuned, key=lambda span: BEST_FIRST.index(span.evidence)))

    def _each(self, device: Device, problem: Problem) -> Iterator[Record | None]:
        """The problem's records under the device's name and its others, then the shipped one."""
        for name in chain((device,), self.namesakes(device)):
            yield self.store.load(name, problem)
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


@lru_cache(maxsize=256)
def _device_in(path: Path) -> Device | None:
    """The device in a record's file, which never changes; None if the file is unreadable."""
    try:
        return Device.from_json(parse(files.read(path, limits.RECORD))["device"])
    except (OSError, ValueError, LookupError, TypeError):
        return None  # reading the record itself warns
