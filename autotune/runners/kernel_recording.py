"""Recorded searches of user kernels, one compressed JSON file each."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families.config import Value
from autotune.files import limits, read, write_whole
from autotune.files.decoding import convert, gunzip, parse, require_schema
from autotune.files.domains import Date, Name
from autotune.problem.call import Call
from autotune.runners.base import Measurement
from autotune.runners.recording import SCHEMA, Origin, SweepRow, columns_of, rows_of


@dataclass(frozen=True)
class KernelRecording:
    """The outcomes of configurations of a user kernel's call on a device; `date` is UTC, ISO 8601.

    There is no vendor `baseline`.
    """

    call: Call
    device: Device
    origin: Origin
    date: str
    rows: tuple[SweepRow, ...]
    baseline: Measurement | None = None

    def save(self, path: Path) -> None:
        """Writes the file whole.

        Raises:
            AutotuneError: if it cannot be written.
        """
        document = {
            "schema": SCHEMA,
            "call": {"name": self.call.name, "arguments": list(self.call.arguments)},
            "device": self.device.to_json(),
            "origin": asdict(self.origin),
            "date": self.date,
            "families": columns_of(self.rows),
        }
        text = json.dumps(document, separators=(",", ":"), allow_nan=False)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, gzip.compress(text.encode(), mtime=0))
        except OSError as error:
            raise AutotuneError(f"{path} cannot be written: {error.strerror}") from error

    @classmethod
    def load(cls, path: Path) -> KernelRecording:
        """Reads a file back.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken or of another schema.
        """
        try:
            text = gunzip(read(path, limits.RECORDING), limits.RECORDING_TEXT)
            document = require_schema(parse(text), "recording", SCHEMA)
            written = convert(document, _KernelRecordingFields, "recording")
            rows = [
                row
                for family, columns in written.families.items()
                for row in rows_of(family, columns, Value)
            ]
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such recording") from error
        except (OSError, ValueError) as error:
            raise AutotuneError(f"{path}: not a recording of a user kernel: {error}") from error
        device, call = Device.from_json(written.device), written.call
        origin = written.origin, written.date
        return cls(Call(call.name, call.arguments), device, *origin, _checked(path, rows))


@dataclass(frozen=True)
class _RecordedCall:
    name: Name
    arguments: tuple[Name, ...]


@dataclass(frozen=True)
class _KernelRecordingFields:
    """A recording as it is written."""

    call: _RecordedCall
    device: dict[str, Any]
    origin: Origin
    date: Date
    families: dict[str, dict[str, Any]]


def _checked(path: Path, rows: Sequence[SweepRow]) -> tuple[SweepRow, ...]:
    if not rows:
        raise AutotuneError(f"{path}: a recording without configurations")
    return tuple(rows)
