"""Look-ups and races of untuned shapes: rows, a table and a file."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from left_out_rows import geomean
from provenance import provenance, rows_in
from rich.table import Table

from autotune.device import Device
from autotune.files import write_whole
from autotune.measure import targets
from autotune.problem import Problem

LOOKUP, RACE, TUNED, VENDOR = "lookup", "quick", "tuned", "vendor"
UNTUNED = (LOOKUP, RACE)
AGAIN = "quick_again"
"""A second race, most of whose programs the first one compiled: its seconds alone are kept."""
ENOUGH = 0.98
"""The speed from which a kernel counts as no slower than cuBLAS."""


@dataclass(frozen=True)
class Row:
    """A shape, its three kernels, and what they cost. Times are None for a kernel that failed.

    Attributes:
        problem: its text.
        how: where the look-up's answer comes from, as `lookup.Answer`.
        expected: the loss that the look-up expects, 0.05 for 5 %.
        configs: the configuration of each kind.
        times_us: the time of each kind and of cuBLAS (`vendor`).
        failures: why a kernel is wrong or too inaccurate.
        left_to_vendor: the kinds in whose place `matmul` calls cuBLAS, as it expects that to win.
        seconds: of the look-up, of the race, of a second race and of the search. Rows of earlier
            versions of this script have no second race.
    """

    problem: str
    how: str
    expected: float | None
    configs: Mapping[str, str]
    times_us: Mapping[str, float]
    failures: Mapping[str, str]
    left_to_vendor: Sequence[str]
    seconds: Mapping[str, float]

    def of_tuned(self, kind: str) -> float:
        """The kernel's speed over that of the tuned one; 0 if it failed."""
        return self.times_us[TUNED] / self.times_us.get(kind, math.inf)

    def over_vendor(self, kind: str) -> float | None:
        """The speed of `matmul` over cuBLAS; None without a time of cuBLAS."""
        if VENDOR not in self.times_us:
            return None
        if kind in self.left_to_vendor:
            return 1.0
        return self.times_us[VENDOR] / self.times_us.get(kind, math.inf)


def kept(path: Path) -> list[Row]:
    """The rows that the file has for these kernel sources."""
    return [Row(**fields) for fields in rows_in(path, targets.here().source)]


def read(path: Path) -> list[Row]:
    """The rows of a file, made with any kernel sources."""
    content = json.loads(path.read_text(encoding="utf-8"))
    return [Row(**fields) for fields in content["rows"]]


def line(row: Row) -> str:
    """A row in one line, such as `300x4096x4096:bf16  nearest 0.974, quick 0.991, over cuBLAS 1.03;
    0.04, 0.61, 0.41, 5.20 s`."""
    lookup, race = (f"{row.of_tuned(kind):.3f}" for kind in UNTUNED)
    over = row.over_vendor(RACE)
    vendor = "" if over is None else f", over cuBLAS {over:.2f}"
    times = ", ".join(f"{seconds:.2f}" for seconds in row.seconds.values())
    wrong = "".join(f"; {kind} {failure}" for kind, failure in row.failures.items())
    return f"{row.problem:32} {row.how} {lookup}, quick {race}{vendor}; {times} s{wrong}"


def summary(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """Geometric means, worst cases and median seconds of look-ups and races."""
    return {kind: figures(rows, kind) for kind in UNTUNED}


def seconds_again(rows: Sequence[Row]) -> dict[str, float]:
    """The median seconds of second races, if there are any, and their number."""
    seconds = [row.seconds[AGAIN] for row in rows if AGAIN in row.seconds]
    return {"median_s": statistics.median(seconds), "shapes": len(seconds)} if seconds else {}


def figures(rows: Sequence[Row], kind: str) -> dict[str, Any]:
    """The figures of one kind; a kernel that failed has a speed of 0.01 in geometric means."""
    beside_tuned = [row.of_tuned(kind) for row in rows]
    beside_vendor = [speed for row in rows if (speed := row.over_vendor(kind)) is not None]
    return {
        "geomean": geomean(beside_tuned),
        "worst": min(beside_tuned),
        "below_0.9": sum(speed < 0.9 for speed in beside_tuned),
        "over_vendor": geomean(beside_vendor) if beside_vendor else None,
        "slower_than_vendor": sum(speed < ENOUGH for speed in beside_vendor),
        "failures": sum(kind in row.failures for row in rows),
        "median_s": statistics.median(row.seconds[kind] for row in rows),
    }


def table(rows: Sequence[Row]) -> Table:
    """The figures of each precision, and of all."""
    names = ("geomean of tuned", "worst", "failed", "over cuBLAS", f"under {ENOUGH}", "median s")
    shown = Table("precision", "shapes", "kernel", *names)
    computes = [Problem.parse(row.problem).compute for row in rows]
    for name in (*dict.fromkeys(computes), "all"):
        group = [
            row for row, compute in zip(rows, computes, strict=True) if name in (compute, "all")
        ]
        for kind, values in summary(group).items():
            over = values["over_vendor"]
            shown.add_row(
                *(name, str(len(group)), kind),
                *(f"{values['geomean']:.3f}", f"{values['worst']:.3f}", str(values["failures"])),
                *(f"{over:.2f}" if over else "", str(values["slower_than_vendor"])),
                f"{values['median_s']:.2f}",
            )
    return shown


def write(path: Path, device: Device, rows: Sequence[Row], commit: str) -> None:
    """Writes the rows with their summary."""
    origin = targets.here()
    content = {
        **provenance(device.name, origin.driver, origin.compiler, commit=commit),
        "source": origin.source,
        **summary(rows),
        AGAIN: seconds_again(rows),
        "rows": [asdict(row) for row in rows],
    }
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode())
