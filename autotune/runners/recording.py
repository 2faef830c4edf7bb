"""Recorded sweeps of a problem on a real device, one compressed JSON file each.

    <root>/<name>/4096x4096x4096-f32-nn.json.gz

`<root>` is `data/recordings` of the package unless another is given. Rows are stored by column,
in a group for each kernel family.
"""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.runners.base import Failure, Measurement

SCHEMA = 1
ROOT = Path(__file__).parents[1] / "data" / "recordings"

_BROKEN = (OSError, EOFError, zlib.error, ValueError, LookupError, TypeError, AttributeError)
_COLUMNS: tuple[tuple[type[Any], tuple[str, ...]], ...] = tuple(
    (part, tuple(field.name for field in fields(part)))
    for part in (Resources, Measurement, Failure)
)


@dataclass(frozen=True)
class Origin:
    """What measurements were made with.

    Attributes:
        driver: the driver's CUDA version, such as `13.0`; empty if nothing ran.
        compiler: such as `NVRTC 13.0`.
        source: hash of the kernel sources.
    """

    driver: str
    compiler: str
    source: str


@dataclass(frozen=True)
class SweepRow:
    """One recorded configuration. The resources of one that did not compile are estimated."""

    config: Config
    resources: Resources
    outcome: Measurement | Failure


@dataclass(frozen=True)
class Recording:
    """What many configurations of a problem did on a device; `date` is UTC, ISO 8601.

    `baseline` is the vendor library's measurement, if one was made.
    """

    problem: Problem
    device: Device
    origin: Origin
    date: str
    baseline: Measurement | None
    rows: tuple[SweepRow, ...]

    def save(self, path: Path) -> None:
        """Writes the file whole; the same recording always gives the same bytes."""
        data = {
            "schema": SCHEMA,
            "problem": str(self.problem),
            "device": self.device.to_json(),
            "origin": asdict(self.origin),
            "date": self.date,
            "baseline": self.baseline and asdict(self.baseline),
            "families": _columns(self.rows),
        }
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        temporary.write_bytes(gzip.compress(text.encode(), mtime=0))
        temporary.replace(path)

    @classmethod
    def load(cls, path: Path) -> Recording:
        """Reads a file back.

        Raises:
            NotFoundError: if there is no such file.
            AutotuneError: if it is broken or of another schema.
        """
        try:
            data = json.loads(gzip.decompress(path.read_bytes()))
            if data["schema"] != SCHEMA:
                raise ValueError(f"schema is {data['schema']!r}, this version reads {SCHEMA}")
            return cls(
                problem=Problem.parse(data["problem"]),
                device=Device.from_json(data["device"]),
                origin=Origin(**data["origin"]),
                date=data["date"],
                baseline=data["baseline"] and Measurement(**data["baseline"]),
                rows=tuple(_rows(data["families"])),
            )
        except FileNotFoundError as error:
            raise NotFoundError(f"{path}: no such recording") from error
        except _BROKEN as error:
            why = f"{type(error).__name__}: {error}"
            raise AutotuneError(f"{path}: not a recording that can be used: {why}") from error


def path_of(name: str, problem: Problem, root: Path = ROOT) -> Path:
    """Where the recording of a problem is kept."""
    return root / name / f"{problem.slug}.json.gz"


def names(root: Path = ROOT) -> dict[str, tuple[Problem, ...]]:
    """The recordings there are, and the problems of each, smallest first."""
    found = {
        directory.name: tuple(sorted(map(_problem, directory.glob("*.json.gz")), key=_size))
        for directory in (sorted(root.iterdir()) if root.is_dir() else ())
    }
    return {name: problems for name, problems in found.items() if problems}


def find(name: str, problem: Problem, root: Path = ROOT) -> Recording:
    """The recording of a problem.

    Raises:
        NotFoundError: if there is none; the message says what there is.
        AutotuneError: if the file is broken.
    """
    known = names(root)
    if name not in known:
        there = ", ".join(known) or "none"
        raise NotFoundError(f"no recording is named {name!r}; there is {there}")
    if problem not in known[name]:
        there = ", ".join(map(str, known[name]))
        raise NotFoundError(f"recording {name!r} does not hold {problem}; it holds {there}")
    return Recording.load(path_of(name, problem, root))


def _problem(path: Path) -> Problem:
    return Problem.parse(path.name.removesuffix(".json.gz").replace("-", ":"))


def _size(problem: Problem) -> tuple[int, Problem]:
    return problem.flops, problem


def _columns(rows: Iterable[SweepRow]) -> dict[str, dict[str, Any]]:
    """The rows of each family, by column; a column that does not apply to a row holds None."""
    families: dict[str, list[SweepRow]] = {}
    for row in rows:
        families.setdefault(row.config.family, []).append(row)
    return {
        family: {
            "params": {
                name: [row.config.values[name] for row in group]
                for name, _ in group[0].config.params
            },
            **{
                name: [_value(row, part, name) for row in group]
                for part, names_ in _COLUMNS
                for name in names_
            },
        }
        for family, group in families.items()
    }


def _value(row: SweepRow, part: type[Any], name: str) -> Any:
    holder = row.resources if part is Resources else row.outcome
    value = getattr(holder, name) if isinstance(holder, part) else None
    # A nanosecond is finer than any timer; more digits would only make the file larger.
    return round(value, 3) if name.endswith("_us") and value is not None else value


def _rows(families: Mapping[str, Mapping[str, Any]]) -> Iterable[SweepRow]:
    for family, given in families.items():
        # Older files do not have all columns.
        absent = [None] * len(given["stage"])
        columns = {"relative_error": absent, "cold_spread_us": absent, **given}
        lengths = {len(columns[name]) for _, names_ in _COLUMNS for name in names_}
        lengths |= {len(values) for values in columns["params"].values()}
        if len(lengths) != 1:
            raise ValueError(f"columns of {family} have {sorted(lengths)} rows")
        for row in range(lengths.pop()):
            params = {name: values[row] for name, values in columns["params"].items()}
            taken, measured, failed = (
                {name: columns[name][row] for name in names_} for _, names_ in _COLUMNS
            )
            outcome = Measurement(**measured) if failed["stage"] is None else Failure(**failed)
            yield SweepRow(Config.of(family, params), Resources(**taken), outcome)
