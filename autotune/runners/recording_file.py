"""Files of recordings, compressed JSON: what those of GEMMs and of user kernels have in common.

Rows are stored by column, in a group for each kernel family.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families.config import Config, FamilyValue
from autotune.families.plan import Resources
from autotune.files import limits, output, read
from autotune.files.compressed import expanded
from autotune.files.decoding import Date, Text, convert, parse, require_schema, shown
from autotune.runners.base import RARE_FIELDS, Failure, Measurement
from autotune.runners.energy import Energy

SCHEMA = 1
SUFFIX = ".json.gz"
"""How the names of recordings end."""

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
class RecordedSweep:
    """The part that all recordings share; `date` is UTC, ISO 8601."""

    device: Device
    origin: Origin
    date: str
    rows: tuple[SweepRow, ...]


@dataclass(frozen=True)
class SweepFields:
    """The same as it is written."""

    device: dict[str, Any]
    origin: Origin
    date: Date
    families: dict[str, dict[str, Any]]

    def sweep(self, value: Any = FamilyValue) -> RecordedSweep:
        """The device and the rows, whose parameters are of the type `value`.

        Raises:
            ValueError: if they are malformed, or there are no rows.
        """
        if not self.families:
            raise ValueError("it has no configurations")
        rows = (row for each in self.families.items() for row in _rows_of(*each, value))
        return RecordedSweep(Device.from_json(self.device), self.origin, self.date, tuple(rows))


def document_of(subject: Mapping[str, Any], sweep: RecordedSweep) -> dict[str, Any]:
    """A recording as JSON data; `subject` says what was recorded."""
    return {
        "schema": SCHEMA,
        **subject,
        "device": sweep.device.to_json(),
        "origin": asdict(sweep.origin),
        "date": sweep.date,
        "families": _columns_of(sweep.rows),
    }


def write(document: Mapping[str, Any], path: Path) -> None:
    """Writes a file whole; the same document always gives the same bytes.

    Raises:
        AutotuneError: if it cannot be written, or something else than a recording is there.
    """
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    with suppress(OSError):  # writing says what is wrong
        path.parent.mkdir(parents=True, exist_ok=True)
    output.write(path, gzip.compress(text.encode(), mtime=0), RECORDING)


def parsed(data: bytes) -> dict[str, Any]:
    """The document in the bytes of a file.

    Raises:
        ValueError: if they are anything but a recording of this schema.
    """
    text = expanded(data, limits.RECORDING_TEXT)
    return dict(require_schema(parse(text), "recording", SCHEMA))


@contextmanager
def reading(path: Path, kind: str = "recording that can be used") -> Iterator[bytes]:
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


def device_of(path: Path) -> Device:
    """The device of a recording of any kind.

    Raises:
        NotFoundError: if there is no such file.
        AutotuneError: if it is broken or of another schema.
    """
    with reading(path) as data:
        return Device.from_json(convert(parsed(data).get("device"), dict[str, Any], "device"))


def _columns_of(rows: Iterable[SweepRow]) -> dict[str, dict[str, Any]]:
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
    for name in RARE_FIELDS:
        if not any(columns[name]):
            del columns[name]
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
    outcome: Measurement | Failure
    if cells["stage"] is None:
        outcome = convert(measured, Measurement, "measurement")
    else:
        outcome = convert(failed, Failure, "failure")
    return SweepRow(config, convert(resources, Resources, "resources"), outcome)
