"""Tuned ranges: all problems that differ in one dimension, each served by a recorded size.

    <root>/ranges/<device>/1-512x4096x4096-bf16-nn.json            measured
    <root>/ranges/<device>/1-512x4096x4096-bf16-nn.cold.json       measured, by cold times
    <root>/ranges/<device>/1-512x4096x4096-bf16-nn.predicted.json  from the cost model
    <root>/ranges/<device>/1-512x4096x4096-bf16-nn-invariant.json  measured, batch-invariant

A range holds no configuration: its points are problems with records of their own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import files
from autotune.device import Device
from autotune.errors import one_of
from autotune.files import checksum, limits
from autotune.files.decoding import Size, Text, convert, parse, require_schema
from autotune.measure.measurement import Evidence
from autotune.measure.objective import HOT, Objective, ObjectiveText, objective_named
from autotune.problem import Problem
from autotune.problem.arguments import DIMENSIONS, sized
from autotune.records.record import BEST_FIRST, folder_of, paths_of
from autotune.settings import warn_once

SCHEMA = 1

FOLDER = "ranges"


@dataclass(frozen=True)
class Segment:
    """Sizes `low` to `high`, inclusive, served by the record of size `point`.

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
    """The recorded size that serves each size of one dimension of a problem on a device.

    Attributes:
        device: the device.
        problem: the problem at the upper end of the range.
        dimension: the varying size: `m`, `n` or `k`.
        segments: ascending and without gaps.
        evidence: the evidence of the points' records.
        objective: the time that was minimised.
        order: order of summation of all kernels of a batch-invariant range. Only look-ups
            that ask for batch invariance take it.

    Raises:
        ValueError: for an unknown dimension, evidence or objective, no segments, gaps between
            segments, or an upper end that is not the problem's.
    """

    device: Device
    problem: Problem
    dimension: str
    segments: tuple[Segment, ...]
    evidence: Evidence = "measured"
    objective: Objective = HOT
    order: str | None = None

    def __post_init__(self) -> None:
        if self.order is not None and self.dimension != "m":
            raise ValueError(f"a batch-invariant range of {self.dimension}, not m")
        if self.dimension not in DIMENSIONS:
            raise ValueError(f"dimension is {self.dimension!r}; give one of m, n, k")
        one_of("evidence", self.evidence, BEST_FIRST)
        objective_named(self.objective)
        if not self.segments:
            raise ValueError("a range without segments; give at least one")
        for before, after in zip(self.segments, self.segments[1:], strict=False):
            if after.low != before.high + 1:
                raise ValueError(
                    f"segment {after.low}.. follows a segment that ends at {before.high}"
                )
        if self.high != getattr(self.problem, self.dimension):
            raise ValueError(f"the segments end at {self.high}, the problem is {self.problem}")

    def __str__(self) -> str:
        """The range as text, such as `1..512x4096x4096:bf16:nn`."""
        shape, *rest = str(self.problem).split(":")
        sizes = shape.split("x")
        sizes[DIMENSIONS.index(self.dimension)] = f"{self.low}..{self.high}"
        return ":".join(("x".join(sizes), *rest))

    @property
    def slug(self) -> str:
        """The text as part of a file name, such as `1-512x4096x4096-bf16-nn`."""
        order = "-invariant" if self.order else ""
        return str(self).replace("..", "-").replace(":", "-") + order

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
        """The range as JSON data, with the device."""
        objective = {} if self.objective is HOT else {"objective": str(self.objective)}
        return {
            "schema": SCHEMA,
            "problem": str(self.problem),
            "dimension": self.dimension,
            "segments": [[segment.low, segment.high, segment.point] for segment in self.segments],
            "evidence": self.evidence,
            **objective,
            **({"order": self.order} if self.order else {}),
            "device": self.device.to_json(),
        }


@dataclass(frozen=True)
class _RangeFields:
    device: dict[str, Any]
    problem: Text
    dimension: Text
    segments: tuple[tuple[Size, Size, Size], ...]
    evidence: Text
    objective: ObjectiveText = "hot"
    order: Text | None = None


def save(root: Path, tuned: Range) -> None:
    """Writes the range; it replaces an earlier one of the same sizes.

    Raises:
        CacheError: if it cannot be written.
    """
    path = path_of(root, tuned)
    data = tuned.to_json()
    sealed = {checksum.CHECKSUM: checksum.of(data), **data}
    with files.locked(path.parent):
        files.write(path, (json.dumps(sealed, indent=2, allow_nan=False) + "\n").encode())


def load(root: Path, device: Device, *, invariant: bool = False) -> tuple[Range, ...]:
    """The ranges of the device that look-ups take, or the batch-invariant ones, by file name. A
    broken file is skipped with a warning."""
    tuned = filter(None, map(_read, paths_of(root / FOLDER, device)))
    return tuple(span for span in tuned if (span.order is not None) == invariant)


def path_of(root: Path, tuned: Range) -> Path:
    """The file of the range."""
    suffix = tuned.objective.suffix(".")
    suffix += "" if tuned.evidence == "measured" else f".{tuned.evidence}"
    return root / FOLDER / folder_of(tuned.device, tuned.evidence) / f"{tuned.slug}{suffix}.json"


def read(path: Path) -> Range:
    """The range in a file.

    Raises:
        ValueError: if the file is broken, its checksum is wrong, or it holds another range.
    """
    try:
        tuned = loads(files.read(path, limits.RECORD))
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error
    if path.parts[-2:] != path_of(Path(), tuned).parts[-2:]:
        raise ValueError(f"holds {tuned} of {tuned.device.name}")
    return tuned


def line(tuned: Range) -> bytes:
    """The range as one line, with its checksum.

    Raises:
        ValueError: if a number is not finite.
    """
    return checksum.sealed(tuned.to_json())


def loads(text: bytes) -> Range:
    """The range in the text of a file or in a line.

    Raises:
        ValueError: if the text is not a whole range, is of another schema, or its checksum is
            wrong, or a field is missing, of another type or impossible.
    """
    fields = require_schema(parse(text), "range", SCHEMA)
    checksum.check(fields, text)
    written = convert(fields, _RangeFields, "range")
    return Range(
        Device.from_json(written.device),
        Problem.parse(written.problem),
        written.dimension,
        tuple(Segment(*sizes) for sizes in written.segments),
        one_of("evidence", written.evidence, BEST_FIRST),
        objective_named(written.objective),
        written.order,
    )


def _read(path: Path) -> Range | None:
    """The range in the file; None, with a warning, if it is broken."""
    try:
        return read(path)
    except ValueError as error:
        warn_once(f"{path}: skipped: {error}")
        return None
