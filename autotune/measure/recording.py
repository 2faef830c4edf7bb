"""Recorded sweeps of a problem or a user kernel on a real device, one compressed JSON file each.

    <root>/<name>/4096x4096x4096-f32-nn.json.gz

`<root>` is the package's `data/recordings` by default. A file stores its rows by column, in a group
for each kernel family.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families.config import Config, FamilyValue, Value
from autotune.families.plan import Resources
from autotune.files import limits, output, read
from autotune.files.decoding import (
    Date,
    Name,
    QualifiedName,
    Text,
    convert,
    parse,
    require_schema,
    shown,
)
from autotune.files.reading import expanded
from autotune.measure import kernel_tuner
from autotune.measure.measurement import RARE_FIELDS, Energy, Failure, Measurement
from autotune.problem import Problem
from autotune.problem.call import KernelCall

SCHEMA = 1
ROOT = Path(__file__).parents[1] / "data" / "recordings"
SUFFIX = ".json.gz"
"""The suffixes of recordings' names."""

RECORDING = output.OutputKind("recording", (b'{"schema":1,"problem":', b'{"schema":1,"call":'))

_COLUMNS: dict[type[Any], tuple[str, ...]] = {
    part: tuple(field.name for field in fields(part)) for part in (Resources, Measurement, Failure)
}
# Columns that older files do not have; the last is left out where it is empty.
_LATER = ("relative_error", "cold_spread_us", *RARE_FIELDS)


@dataclass(frozen=True)
class Origin:
    """Driver, compiler and kernel sources of measurements.

    Attributes:
        driver: the driver's CUDA version, such as `13.0`; empty if nothing ran.
        compiler: such as `NVRTC 13.0`.
        source: hash of the kernel sources, or a hash for each family (`families.source_text`).
    """

    driver: Text
    compiler: Text
    source: Text


@dataclass(frozen=True)
class SweepRow:
    """One recorded configuration; if it did not compile, its resources are estimates."""

    config: Config
    resources: Resources
    outcome: Measurement | Failure


@dataclass(frozen=True)
class Recording:
    """The outcomes of many configurations of a problem on a device; `date` is UTC, ISO 8601.

    `baseline` is the vendor library's measurement, if it was timed.
    """

    problem: Problem
    device: Device
    origin: Origin
    date: str
    baseline: Measurement | None
    rows: tuple[SweepRow, ...]

    def save(self, path: Path) -> None:
        """Writes the file whole; the same recording always gives the same bytes.

        Raises:
            AutotuneError: if it cannot be written, or something else than a recording is there.
        """
        _write(self.document(), path)

    def document(self) -> dict[str, Any]:
        """The recording as JSON data."""
        baseline = self.baseline and self.baseline.fields()
        return _document(self, problem=str(self.problem), baseline=baseline)

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Reads a file back.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken, of another schema or of a user kernel.
        """
        with _reading(path) as data:
            return cls.loads(data)

    @classmethod
    def loads(cls, data: bytes) -> Recording:
        """The recording in the bytes of a file.

        Raises:
            ValueError: if they are anything but a recording of this schema.
        """
        document = _parsed(data)
        if "call" in document:
            raise ValueError("it is of a user kernel; give it to `tune_kernel`")
        written = convert(document, _RecordingFields, "recording")
        device, rows = written.device_and_rows()
        problem = Problem.parse(written.problem)
        return cls(problem, device, written.origin, written.date, written.baseline, rows)


@dataclass(frozen=True)
class KernelRecording:
    """The outcomes of configurations of a user kernel's call on a device; `date` is UTC, ISO 8601.

    There is no vendor `baseline`. A file of Kernel Tuner is of any call: it does not say which
    arguments the kernel had.
    """

    call: KernelCall
    device: Device
    origin: Origin
    date: str
    rows: tuple[SweepRow, ...]
    baseline: Measurement | None = None
    any_call: bool = False

    def save(self, path: Path) -> None:
        """Writes the file whole.

        Raises:
            AutotuneError: if it cannot be written.
        """
        call = {"name": self.call.name, "arguments": list(self.call.arguments)}
        if self.call.constants:
            call["constants"] = list(self.call.constants)
        _write(_document(self, call=call), path)

    @classmethod
    def load(cls, path: Path) -> KernelRecording:
        """Reads a file back, or a cache or results of Kernel Tuner.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken, of another schema or of a GEMM.
        """
        with _reading(path, "recording of a user kernel") as data:
            if (foreign := kernel_tuner.read(data, path.name)) is not None:
                origin = Origin("", "Kernel Tuner", sha256(data).hexdigest())
                rows = tuple(SweepRow(*row) for row in foreign.rows)
                return cls(
                    KernelCall(foreign.kernel, ()), foreign.device, origin, "", rows, None, True
                )
            document = _parsed(data)
            if "problem" in document:
                raise ValueError("it is of a GEMM; give it to `tune`")
            written = convert(document, _KernelRecordingFields, "recording")
            device, rows = written.device_and_rows(Value)
            for row in rows:
                row.config.check_plain()
        call = KernelCall(written.call.name, written.call.arguments, written.call.constants)
        return cls(call, device, written.origin, written.date, rows)


@dataclass(frozen=True)
class _WrittenFields:
    """The fields of every recording as they are written."""

    device: dict[str, Any]
    origin: Origin
    date: Date
    families: dict[str, dict[str, Any]]

    def device_and_rows(self, value: Any = FamilyValue) -> tuple[Device, tuple[SweepRow, ...]]:
        """The device and the rows, whose parameters are of the type `value`.

        Raises:
            ValueError: if they are malformed, or there are no rows.
        """
        if not self.families:
            raise ValueError("it has no configurations")
        rows = (row for each in self.families.items() for row in _rows_of(*each, value))
        return Device.from_json(self.device), tuple(rows)


@dataclass(frozen=True)
class _RecordingFields(_WrittenFields):
    problem: Text
    baseline: Measurement | None


@dataclass(frozen=True)
class _RecordedCall:
    name: QualifiedName
    arguments: tuple[Name, ...]
    constants: tuple[Name, ...] = ()


@dataclass(frozen=True)
class _KernelRecordingFields(_WrittenFields):
    call: _RecordedCall


def path_of(name: str, problem: Problem, root: Path = ROOT) -> Path:
    """The file of a problem's recording."""
    return root / name / f"{problem.slug}{SUFFIX}"


def names(root: Path = ROOT) -> dict[str, tuple[Problem, ...]]:
    """The names of all recordings with the problems of each, smallest first."""

    def problems(folder: Path) -> Iterator[Problem]:
        for path in _files(folder):
            yield Problem.parse(path.name.removesuffix(SUFFIX).replace("-", ":"))

    recordings = {
        folder.name: tuple(sorted(problems(folder), key=lambda each: (each.flops, each)))
        for folder in (sorted(root.iterdir()) if root.is_dir() else ())
    }
    return {name: problems for name, problems in recordings.items() if problems}


def find(name: str, problem: Problem, root: Path = ROOT) -> Recording:
    """The recording of a problem.

    Raises:
        NotFoundError: if there is none; the message lists the recordings or problems.
        AutotuneError: if the file is broken.
    """
    recordings = names(root)
    if name not in recordings:
        listed = ", ".join(recordings) or "none"
        raise NotFoundError(f"no recording is named {name!r}; there is {listed}")
    if problem not in recordings[name]:
        listed = ", ".join(map(str, recordings[name]))
        raise NotFoundError(f"recording {name!r} does not hold {problem}; it holds {listed}")
    return Recording.load(path_of(name, problem, root))


def find_in(path: Path, problem: Problem) -> Recording:
    """The recording of a problem in a file, or in a folder of such files.

    Raises:
        NotFoundError: if there is none; with the problems that there are.
        AutotuneError: if the file is broken.
    """
    file = path / f"{problem.slug}{SUFFIX}" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        listed = ", ".join(each.name for each in _files(path)) or "none"
        raise NotFoundError(f"{path} has no recording {file.name}; it has {listed}")
    recording = Recording.load(file)
    if recording.problem != problem:
        raise NotFoundError(f"{file} is a recording of {recording.problem}, not of {problem}")
    return recording


def device_in(path: Path) -> Device:
    """The device of a recording of any kind, or of the first in a folder.

    Raises:
        NotFoundError: if there is none.
        AutotuneError: if the file is broken or of another schema.
    """
    file = path
    if path.is_dir():
        if not (files := _files(path)):
            raise NotFoundError(f"{path} has no recordings, which end with {SUFFIX}")
        file = files[0]
    with _reading(file) as data:
        if (foreign := kernel_tuner.read(data, file.name)) is not None:
            return foreign.device
        return Device.from_json(convert(_parsed(data).get("device"), dict[str, Any], "device"))


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"*{SUFFIX}"))


def _document(recording: Recording | KernelRecording, **subject: Any) -> dict[str, Any]:
    """A recording as JSON data; `subject` says what was recorded."""
    families: dict[str, list[SweepRow]] = {}
    for row in recording.rows:
        families.setdefault(row.config.family, []).append(row)
    return {
        "schema": SCHEMA,
        **subject,
        "device": recording.device.to_json(),
        "origin": asdict(recording.origin),
        "date": recording.date,
        "families": {family: _columns(group) for family, group in families.items()},
    }


def _write(document: Mapping[str, Any], path: Path) -> None:
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    with suppress(OSError):  # writing says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
    output.write(path, gzip.compress(text.encode(), mtime=0), RECORDING)


def _parsed(data: bytes) -> dict[str, Any]:
    """The document in the bytes of a file.

    Raises:
        ValueError: if they are anything but a recording of this schema.
    """
    text = expanded(data, limits.RECORDING_TEXT)
    return dict(require_schema(parse(text), "recording", SCHEMA))


@contextmanager
def _reading(path: Path, kind: str = "recording that can be used") -> Iterator[bytes]:
    """The bytes of a file; what is wrong with them becomes an error that names it.

    Raises:
        NotFoundError: if there is no such file.
        AutotuneError: if it cannot be read, or on a ValueError within the `with` block.
    """
    try:
        yield read(path, limits.RECORDING)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such recording") from error
    except OSError as error:
        raise AutotuneError(f"{path}: not a {kind}: {error.strerror or error}") from error
    except ValueError as error:
        raise AutotuneError(f"{path}: not a {kind}: {error}") from error


def _columns(group: Sequence[SweepRow]) -> dict[str, Any]:
    """The rows of a family, by column; a column that does not apply to a row holds None."""
    params = {name: [row.config.values[name] for row in group] for name in group[0].config.values}
    cells = {
        name: [_cell(row, part, name) for row in group]
        for part, columns in _COLUMNS.items()
        for name in columns
    }
    kept = {name: cells[name] for name in cells if name not in RARE_FIELDS or any(cells[name])}
    return {"params": params} | kept


def _cell(row: SweepRow, part: type[Any], name: str) -> Any:
    holder = row.resources if part is Resources else row.outcome
    value = getattr(holder, name) if isinstance(holder, part) else None
    if isinstance(value, Energy):
        return asdict(value)
    # A nanosecond is finer than any timer; more digits would only make the file larger.
    return round(value, 3) if name.endswith("_us") and value is not None else value


def _rows_of(
    family: str, columns: Mapping[str, Any], value: Any = FamilyValue
) -> Iterator[SweepRow]:
    """The rows of a family from its columns, with parameters of the type `value`; ValueError if
    they do not fit together."""
    path = f"families.{family}"
    params = convert(columns.get("params"), dict[str, list[value]], f"{path}.params")
    written = {name: columns.get(name) for part in _COLUMNS.values() for name in part}
    absent = [None] * len(convert(written["stage"], list[Any], f"{path}.stage"))
    written |= {name: absent for name in _LATER if name not in columns}
    cells = convert(written, dict[str, list[Any]], path)
    lengths = {len(values) for values in (*cells.values(), *params.values())}
    if len(lengths) != 1:
        raise ValueError(f"columns of {family} have {sorted(lengths)} rows")
    for number in range(lengths.pop()):
        config = Config.of(family, {name: values[number] for name, values in params.items()})
        try:
            yield _row(config, {name: values[number] for name, values in cells.items()})
        except ValueError as error:
            raise ValueError(f"{path}, row {number}: {error}") from error


def _row(config: Config, cells: Mapping[str, Any]) -> SweepRow:
    """The row in one cell of each column."""
    resources, measured, failed = (
        {name: cells[name] for name in names_} for names_ in _COLUMNS.values()
    )
    unused = failed if cells["stage"] is None else measured
    if any(value is not None for value in unused.values()):
        raise ValueError(f"both measured and failed: {shown(cells)}")
    outcome: Measurement | Failure = (
        convert(measured, Measurement, "measurement")
        if cells["stage"] is None
        else convert(failed, Failure, "failure")
    )
    return SweepRow(config, convert(resources, Resources, "resources"), outcome)
