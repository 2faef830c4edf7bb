"""Records on disk: one JSON file for each problem or kernel, device and kind of evidence.

    <root>/records/<device>/4096x4096x4096-f32-nn.json            measured
    <root>/records/<device>/4096x4096x4096-f32-nn.replayed.json   from a recording
    <root>/records/<device>/4096x4096x4096-f32-nn.predicted.json  from the cost model
    <root>/kernels/<device>/transpose-4f0c27e1a95d8b36.json       a kernel of the user's, measured
    <root>/quarantine/<device>.jsonl                              candidates that crashed or hung

A file that cannot be read as a record, or whose checksum is wrong, is a miss with a warning. It is
never lost: before a record takes its place it is copied to `<file>.broken-<n>`, and a record that
was made with another driver, compiler or other kernel sources to `<file>.superseded-<n>`. How two
records of one thing become one: `merging`.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.device import Device
from autotune.problem import Problem
from autotune.problem.call import Call
from autotune.records import codec, files
from autotune.records.merging import Made, R, comparable, merge, reconcile
from autotune.records.record import BEST_FIRST, BaseRecord, Entry, KernelRecord, Provenance, Record
from autotune.runners.base import Evidence

__all__ = ["BaseRecord", "Entry", "KernelRecord", "Provenance", "Record", "Store"]

Change = Literal["new", "better", "equal", "passed over"]
"""What a record of another store did to one's own: there was none, it was improved or replaced,
nothing came of it, or the own one stands although the other was made with something else."""


@dataclass(frozen=True)
class Store:
    """The records and the quarantine under a directory, which need not exist yet.

    Any number of processes may use it at once. Devices are told apart by their slug, so that a
    record serves every card of its model.
    """

    root: Path

    def path(self, device: Device, problem: Problem, evidence: Evidence = "measured") -> Path:
        """Where the record is kept."""
        return self._path(Record, device, problem.slug, evidence)

    def save(self, record: R) -> R:
        """Merges the record into the one on disk (see `record.merge`) and returns the result.

        Raises:
            CacheError: if it cannot be written; the file on disk is then as it was.
        """
        path = self._place(record)
        with files.locked(path.parent):
            old = self._previous(path, type(record))
            merged = merge(old, record)
            self._replace(path, old, merged)
        return merged

    def adopt(self, record: R, today: Made | None) -> Change:
        """Takes over what is better in a record of another store (see `merging.reconcile`).

        Args:
            record: of another store.
            today: what this machine would measure with; None if that is not known.

        Raises:
            CacheError: if it cannot be written; the file on disk is then as it was.
        """
        path = self._place(record)
        with files.locked(path.parent):
            old = self._previous(path, type(record))
            merged = merge(None, record) if old is None else reconcile(old, record, today)
            if merged != old:
                self._replace(path, old, merged)
        if old is None or merged != old:
            return "new" if old is None else "better"
        return "equal" if comparable(old.provenance, record.provenance) else "passed over"

    def withdraw(self, record: BaseRecord) -> Path:
        """Sets the file of a record aside, so that nothing runs what it holds; returns where.

        Raises:
            CacheError: if the file cannot be read, copied or deleted.
        """
        path = self._place(record)
        with files.locked(path.parent):
            aside = files.copy_aside(path, "superseded")
            files.delete(path)
        return aside

    def paths(self) -> Iterator[Path]:
        """The files of all records, whether they can be read or not."""
        for kind in (Record, KernelRecord):
            yield from sorted((self.root / kind.FOLDER).glob("*/*.json"))

    def read(self, path: Path) -> BaseRecord | None:
        """The record in one of `paths`, None if it has gone.

        Raises:
            ValueError: if the file is broken, or holds what belongs somewhere else.
        """
        return self._parse(path, KernelRecord if self._of_kernel(path) else Record)

    def load(
        self, device: Device, problem: Problem, evidence: Evidence | None = None
    ) -> Record | None:
        """The record with the best evidence (measured, replayed, predicted) or that asked for.

        None if there is none. A broken file is warned of and passed over.
        """
        kinds = BEST_FIRST if evidence is None else (evidence,)
        paths = (self.path(device, problem, kind) for kind in kinds)
        found = (self._read(path, Record) for path in paths)
        return next((record for record in found if record is not None), None)

    def kernel(self, device: Device, call: Call) -> KernelRecord | None:
        """What was measured of a kernel of the user's; None if there is nothing.

        A broken file is warned of and passed over.
        """
        return self._read(self._path(KernelRecord, device, call.slug, "measured"), KernelRecord)

    def records(self, device: Device) -> list[Record]:
        """The record with the best evidence of every problem on the device, by problem."""
        paths = (self.root / Record.FOLDER / device.slug).glob("*.json")
        found = (self._read(path, Record) for path in paths)
        known = [record for record in found if record is not None]
        known.sort(key=lambda record: BEST_FIRST.index(record.evidence), reverse=True)
        best = {record.problem: record for record in known}
        return [best[problem] for problem in sorted(best)]

    def quarantine(self, device: Device, key: str, reason: str) -> None:
        """Records at once that the candidate `key` crashed or hung on the device.

        Raises:
            CacheError: if it cannot be written.
        """
        path = self._quarantine_path(device)
        with files.locked(path.parent):
            files.append_line(path, json.dumps({"key": key, "reason": reason}).encode())

    def quarantined(self, device: Device) -> dict[str, str]:
        """The reason, the latest if there are several, for each candidate in quarantine."""
        path = self._quarantine_path(device)
        try:
            *lines, _torn = (_bytes(path) or b"").split(b"\n")
        except ValueError as error:
            _warn(f"{path}: passed over: {error}")
            return {}
        known: dict[str, str] = {}
        for number, line in enumerate(lines, start=1):
            fields = _fields(line)
            if fields is None:
                _warn(f"{path}: line {number} is broken and passed over")
            else:
                known[fields[0]] = fields[1]
        return known

    def _path(self, kind: type[BaseRecord], device: Device, slug: str, evidence: Evidence) -> Path:
        suffix = "" if evidence == "measured" else f".{evidence}"
        return self.root / kind.FOLDER / device.slug / f"{slug}{suffix}.json"

    def _of_kernel(self, path: Path) -> bool:
        return path.is_relative_to(self.root / KernelRecord.FOLDER)

    def _replace(self, path: Path, old: BaseRecord | None, new: BaseRecord) -> None:
        """Writes the record; one whose times cannot be compared with its own is kept beside it."""
        if old is not None and not comparable(old.provenance, new.provenance):
            files.copy_aside(path, "superseded")
        files.write(path, codec.dumps(new))

    def _place(self, record: BaseRecord) -> Path:
        return self._path(type(record), record.device, record.slug, record.evidence)

    def _quarantine_path(self, device: Device) -> Path:
        return self.root / "quarantine" / f"{device.slug}.jsonl"

    def _read(self, path: Path, kind: type[R]) -> R | None:
        """The record in the file; None if there is no file or, with a warning, a broken one."""
        try:
            return self._parse(path, kind)
        except ValueError as error:
            _warn(f"{path}: passed over: {error}")
            return None

    def _previous(self, path: Path, kind: type[R]) -> R | None:
        """The record in the file that is about to be replaced; a broken file is kept first."""
        try:
            return self._parse(path, kind)
        except ValueError as error:
            _warn(f"{path}: kept as {files.copy_aside(path, 'broken').name}: {error}")
            return None

    def _parse(self, path: Path, kind: type[R]) -> R | None:
        """The record in the file, None if there is no file; ValueError if it is broken."""
        text = _bytes(path)
        if text is None:
            return None
        record = codec.loads(text)
        if not isinstance(record, kind) or self._place(record) != path:
            raise ValueError(f"holds {record.evidence} {record.title} of {record.device.name}")
        return record


def _fields(line: bytes) -> tuple[str, str] | None:
    """Key and reason of a line of the quarantine; None if it is broken."""
    try:
        data = json.loads(line)
        return str(data["key"]), str(data["reason"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _bytes(path: Path) -> bytes | None:
    """What the file holds, None if there is none; ValueError if it cannot be read."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _warn(message: str) -> None:
    # One place for all, so that the default filter shows each message once.
    warnings.warn(message, stacklevel=1)
