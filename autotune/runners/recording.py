"""Recorded sweeps of a problem on a real device, one compressed JSON file each.

    <root>/<name>/4096x4096x4096-f32-nn.json.gz

`<root>` is the package's `data/recordings` by default. Rows are stored by column, in a group for
each kernel family.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families.config import Config, FamilyValue
from autotune.families.plan import Resources
from autotune.files import limits, read, write_whole
from autotune.files.decoding import convert, gunzip, parse, require_schema, shown
from autotune.files.domains import Date, Text
from autotune.problem import Problem
from autotune.runners.base import Failure, Measurement
from autotune.runners.energy import Energy

SCHEMA = 1
ROOT = Path(__file__).parents[1] / "data" / "recordings"

_COLUMNS: dict[type[Any], tuple[str, ...]] = {
    part: tuple(field.name for field in fields(part)) for part in (Resources, Measurement, Failure)
}
# Columns that older files do not have; the last is left out where it is empty.
_LATER = ("relative_error", "cold_spread_us", "energy")


@dataclass(frozen=True)
class Origin:
    """Driver, compiler and kernel sources of measurements.

    Attributes:
        driver: the driver's CUDA version, such as `13.0`; empty if nothing ran.
        compiler: such as `NVRTC 13.0`.
        source: hash of the kernel sources.
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
        """Writes the file whole; the same recording always gives the same bytes."""
        text = json.dumps(self.document(), separators=(",", ":"), allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, gzip.compress(text.encode(), mtime=0))

    def document(self) -> dict[str, Any]:
        """The recording as JSON data."""
        return {
            "schema": SCHEMA,
            "problem": str(self.problem),
            "device": self.device.to_json(),
            "origin": asdict(self.origin),
            "date": self.date,
            "baseline": self.baseline and self.baseline.fields(),
            "families": columns_of(self.rows),
        }

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Reads a file back.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken or of another schema.
        """
        try:
            return cls.loads(read(path, limits.RECORDING))
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such recording") from error
        except (OSError, ValueError) as error:
            raise AutotuneError(f"{path}: not a recording that can be used: {error}") from error

    @classmethod
    def loads(cls, data: bytes) -> Recording:
        """The recording in the bytes of a file.

        Raises:
            ValueError: if they are anything but a recording of this schema.
        """
        document = require_schema(parse(gunzip(data, limits.RECORDING_TEXT)), "recording", SCHEMA)
        written = convert(document, _RecordingFields, "recording")
        if not written.families:
            raise ValueError("it has no configurations")
        return cls(
            problem=Problem.parse(written.problem),
            device=Device.from_json(written.device),
            origin=written.origin,
            date=written.date,
            baseline=written.baseline,
            rows=tuple(
                row
                for family, columns in written.families.items()
                for row in rows_of(family, columns)
            ),
        )


@dataclass(frozen=True)
class _RecordingFields:
    """A recording as it is written."""

    problem: Text
    device: dict[str, Any]
    origin: Origin
    date: Date
    baseline: Measurement | None
    families: dict[str, dict[str, Any]]


def path_of(name: str, problem: Problem, root: Path = ROOT) -> Path:
    """The file of a problem's recording."""
    return root / name / f"{problem.slug}.json.gz"


def names(root: Path = ROOT) -> dict[str, tuple[Problem, ...]]:
    """The names of all recordings with the problems of each, smallest first."""
    recordings = {
        directory.name: tuple(sorted(map(_problem, directory.glob("*.json.gz")), key=_size))
        for directory in (sorted(root.iterdir()) if root.is_dir() else ())
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


def _problem(path: Path) -> Problem:
    return Problem.parse(path.name.removesuffix(".json.gz").replace("-", ":"))


def _size(problem: Problem) -> tuple[int, Problem]:
    return problem.flops, problem


def columns_of(rows: Iterable[SweepRow]) -> dict[str, dict[str, Any]]:
    """The rows of each family, by column; a column that does not apply to a row holds None."""
    families: dict[str, list[SweepRow]] = {}
    for row in rows:
        families.setdefault(row.config.family, []).append(row)
    return {family: _columns(group) for family, group in families.items()}


def _columns(group: Sequence[SweepRow]) -> dict[str, Any]:
    """The rows of a family, by column."""
    names = [name for name, _ in group[0].config.params]
    columns = {
        name: [_cell(row, part, name) for row in group]
        for part, names_ in _COLUMNS.items()
        for name in names_
    }
    if not any(columns["energy"]):
        del columns["energy"]
    return {
        "params": {name: [row.config.values[name] for row in group] for name in names}
    } | columns


def _cell(row: SweepRow, part: type[Any], name: str) -> Any:
    holder = row.resources if part is Resources else row.outcome
    value = getattr(holder, name) if isinstance(holder, part) else None
    if isinstance(value, Energy):
        return asdict(value)
    # A nanosecond is finer than any timer; more digits would only make the file larger.
    return round(value, 3) if name.endswith("_us") and value is not None else value


def rows_of(
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
    outcome: Measurement | Failure
    if cells["stage"] is None:
        outcome = convert(measured, Measurement, "measurement")
    else:
        outcome = convert(failed, Failure, "failure")
    return SweepRow(config, convert(resources, Resources, "resources"), outcome)
