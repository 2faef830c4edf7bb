"""Recorded searches of user kernels, one compressed JSON file each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from autotune.device import Device
from autotune.families.config import Value
from autotune.files.decoding import convert
from autotune.files.domains import Name, QualifiedName
from autotune.problem.call import KernelCall
from autotune.runners.base import Measurement
from autotune.runners.recording_file import (
    Origin,
    RecordedSweep,
    SweepFields,
    SweepRow,
    document_of,
    parsed,
    reading,
    write,
)


@dataclass(frozen=True)
class KernelRecording:
    """The outcomes of configurations of a user kernel's call on a device; `date` is UTC, ISO 8601.

    There is no vendor `baseline`.
    """

    call: KernelCall
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
        call = {"name": self.call.name, "arguments": list(self.call.arguments)}
        sweep = RecordedSweep(self.device, self.origin, self.date, self.rows)
        write(document_of({"call": call}, sweep), path)

    @classmethod
    def load(cls, path: Path) -> KernelRecording:
        """Reads a file back.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken, of another schema or of a GEMM.
        """
        with reading(path, "recording of a user kernel") as data:
            document = parsed(data)
            if "problem" in document:
                raise ValueError("it is of a GEMM; give it to `tune`")
            written = convert(document, _KernelRecordingFields, "recording")
            sweep = written.sweep(Value)
            for row in sweep.rows:
                row.config.check_plain()
        call = KernelCall(written.call.name, written.call.arguments)
        return cls(call, sweep.device, sweep.origin, sweep.date, sweep.rows)


@dataclass(frozen=True)
class _RecordedCall:
    name: QualifiedName
    arguments: tuple[Name, ...]


@dataclass(frozen=True)
class _KernelRecordingFields(SweepFields):
    """A recording as it is written."""

    call: _RecordedCall
