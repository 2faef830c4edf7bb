"""Tuned ranges: problems that differ in one dimension alone, all of which run what is recorded at a
few of its sizes.

    <root>/ranges/<device>/1-512x4096x4096-bf16-nn.json            measured
    <root>/ranges/<device>/1-512x4096x4096-bf16-nn.predicted.json  from the cost model

A range holds no configuration: its points are problems with records of their own.
"""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from autotune.device import Device
from autotune.problem import Problem
from autotune.problem.span import DIMENSIONS, sized
from autotune.records import checksum, files
from autotune.runners.base import Evidence

SCHEMA = 1
FOLDER = "ranges"
EVIDENCE: tuple[str, ...] = get_args(Evidence)


@dataclass(frozen=True)
class Segment:
    """Sizes `low` to `high`, both included, run what is recorded at `point`.

    Raises:
        ValueError: if `low` is below 1 or above `high`, or `point` below 1.
    """

    low: int
    high: int
    point: int

    def __post_init__(self) -> None:
        if not 1 <= self.low <= self.high or self.point < 1:
            raise ValueError(f"segment {self.low}..{self.high} with point {self.point}")


@dataclass(frozen=True)
class Range:
    """What runs for each size of one dimension of a problem on a device.

    Attributes:
        device: where.
        problem: the problem at the upper end of the range.
        dimension: which of its sizes varies: `m`, `n` or `k`.
        segments: ascending and without gaps.
        loss: the greatest loss against full tuning that is expected in it, 0.05 = 5 %.
        evidence: what the records of its points rest on.

    Raises:
        ValueError: for an unknown dimension or evidence, a negative loss, no segments, gaps between
            them, or an upper end that is not the problem's.
    """

    device: Device
    problem: Problem
    dimension: str
    segments: tuple[Segment, ...]
    loss: float
    evidence: Evidence = "measured"

    def __post_init__(self) -> None:
        if self.dimension not in DIMENSIONS:
            raise ValueError(f"dimension is {self.dimension!r}; give one of m, n, k")
        if self.evidence not in EVIDENCE:
            raise ValueError(f"evidence is {self.evidence!r}, not one of {', '.join(EVIDENCE)}")
        if not 0 <= self.loss < float("inf"):
            raise ValueError(f"loss is {self.loss}, not a share")
        if not self.segments:
            raise ValueError("a range without segments; give at least one")
        for one, after in zip(self.segments, self.segments[1:], strict=False):
            if after.low != one.high + 1:
                raise ValueError(f"segment {after.low}.. follows one that ends at {one.high}")
        if self.high != getattr(self.problem, self.dimension):
            raise ValueError(f"the segments end at {self.high}, the problem is {self.problem}")

    def __str__(self) -> str:
        """Such as `1..512x4096x4096:bf16:nn`."""
        shape, *rest = str(self.problem).split(":")
        sizes = shape.split("x")
        sizes[DIMENSIONS.index(self.dimension)] = f"{self.low}..{self.high}"
        return ":".join(("x".join(sizes), *rest))

    @property
    def slug(self) -> str:
        """The text as part of a file name, such as `1-512x4096x4096-bf16-nn`."""
        return str(self).replace("..", "-").replace(":", "-")

    @property
    def low(self) -> int:
        """The smallest size."""
        return self.segments[0].low

    @property
    def high(self) -> int:
        """The largest size."""
        return self.segments[-1].high

    @property
    def points(self) -> tuple[Problem, ...]:
        """The problems whose records serve the range, ascending."""
        sizes = sorted({segment.point for segment in self.segments})
        return tuple(sized(self.problem, self.dimension, size) for size in sizes)

    def point(self, problem: Problem) -> Problem | None:
        """The problem whose record serves `problem`; None if the range does not cover it."""
        size = int(getattr(problem, self.dimension))
        if sized(problem, self.dimension, self.high) != self.problem:
            return None
        for segment in self.segments:
            if segment.low <= size <= segment.high:
                return sized(problem, self.dimension, segment.point)
        return None

    def to_json(self) -> dict[str, object]:
        """As JSON data, without the device."""
        return {
            "schema": SCHEMA,
            "problem": str(self.problem),
            "dimension": self.dimension,
            "segments": [[one.low, one.high, one.point] for one in self.segments],
            "loss": self.loss,
            "evidence": self.evidence,
        }

    @classmethod
    def from_json(cls, data: object, device: Device) -> Range:
        """The range that `to_json` made `data` from.

        Raises:
            ValueError: if a value is missing, of another type or impossible, or the schema another.
        """
        if not isinstance(data, dict):
            raise ValueError("range is not an object")
        if data.get("schema") != SCHEMA:
            raise ValueError(f"schema is {data.get('schema')!r}, this version reads {SCHEMA}")
        problem, dimension, loss = data.get("problem"), data.get("dimension"), data.get("loss")
        if not isinstance(problem, str) or not isinstance(dimension, str):
            raise ValueError(f"problem is {problem!r}, dimension {dimension!r}")
        if isinstance(loss, bool) or not isinstance(loss, int | float):
            raise ValueError(f"loss is {loss!r}")
        return cls(
            *(device, Problem.parse(problem), dimension),
            _segments(data.get("segments")),
            float(loss),
            data.get("evidence", ""),
        )


def save(root: Path, found: Range) -> None:
    """Writes the range; it takes the place of an earlier one of the same sizes.

    Raises:
        CacheError: if it cannot be written.
    """
    path = path_of(root, found)
    data = {**found.to_json(), "device": found.device.to_json()}
    sealed = {checksum.CHECKSUM: checksum.of(data), **data}
    with files.locked(path.parent):
        files.write(path, (json.dumps(sealed, indent=2, allow_nan=False) + "\n").encode())


def load(root: Path, device: Device) -> tuple[Range, ...]:
    """All ranges of the device, by file name; a broken file is warned of and passed over."""
    paths = sorted((root / FOLDER / device.slug).glob("*.json"))
    return tuple(found for path in paths if (found := _read(path)) is not None)


def path_of(root: Path, found: Range) -> Path:
    """Where the range is kept."""
    suffix = "" if found.evidence == "measured" else f".{found.evidence}"
    return root / FOLDER / found.device.slug / f"{found.slug}{suffix}.json"


def read(path: Path) -> Range:
    """The range in a file.

    Raises:
        ValueError: if the file is broken, its checksum is wrong, or it holds another range.
    """
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, dict) or not isinstance(data.get("device"), dict):
            raise ValueError("device is not an object")
        checksum.check(data)
        found = Range.from_json(data, Device.from_json(data["device"]))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    except (ArithmeticError, RecursionError) as error:  # 400-digit numbers, 10,000 brackets
        raise ValueError(str(error)) from error
    if path.parts[-2:] != path_of(Path(), found).parts[-2:]:
        raise ValueError(f"holds {found} of {found.device.name}")
    return found


def _read(path: Path) -> Range | None:
    """The range in the file; None, with a warning, if it is broken."""
    try:
        return read(path)
    except ValueError as error:
        warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
        return None


def _segments(data: object) -> tuple[Segment, ...]:
    if not isinstance(data, list):
        raise ValueError("segments is not a list")
    found = []
    for one in data:
        if not isinstance(one, list) or len(one) != 3 or any(type(size) is not int for size in one):
            raise ValueError(f"segment is {one!r}; not [low, high, point]")
        found.append(Segment(*one))
    return tuple(found)
