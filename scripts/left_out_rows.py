"""Look-ups of left-out shapes: rows, a table and a file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from provenance import provenance
from rich.console import Console
from rich.table import Table

from autotune.device import Device
from autotune.measure import targets

SHOWN = Console(width=110, soft_wrap=True)


@dataclass(frozen=True)
class Row:
    """The look-up of a problem that was left out.

    Attributes:
        problem: its text.
        how: as `lookup.Answer`.
        ratio: the time of the best configuration over that of the picked one, at most about 1; 0 if
            the picked one failed.
        expected: the expected loss, 0.05 for 5 %.
        deviation: the model's standard deviation for the picked configuration; None if unknown.
        picked, best: configurations.
        picked_us, best_us: their times.
        lookup_s: seconds of the look-up.
    """

    problem: str
    how: str
    ratio: float
    expected: float | None
    deviation: float | None
    picked: str
    best: str
    picked_us: float | None
    best_us: float
    lookup_s: float


def geomean(ratios: Sequence[float]) -> float:
    """Geometric mean of ratios; a failed look-up counts as 0.01."""
    return math.exp(sum(math.log(max(ratio, 0.01)) for ratio in ratios) / len(ratios))


def line(row: Row) -> str:
    """A row in one line, such as `300x4096x4096:bf16:nt  nearest 0.974, expected 0.952`."""
    expected = "" if row.expected is None else f", expected {1 / (1 + row.expected):.3f}"
    return f"{row.problem:28} {row.how:9} {row.ratio:.3f}{expected}; lookup {row.lookup_s:.2f} s"


def show(rows: Sequence[Row]) -> None:
    """Prints the worst ten rows, and a table by kind of answer."""
    for row in sorted(rows, key=lambda row: row.ratio)[:10]:
        SHOWN.print(line(row), markup=False, highlight=False)
    shown = Table("answers", "problems", "geomean", "worst", "below 0.9", "below 0.8", "expected")
    for how in [*dict.fromkeys(row.how for row in rows), "all"]:
        group = [row for row in rows if how in (row.how, "all")]
        ratios = [row.ratio for row in group]
        expected = geomean([1 / (1 + (row.expected or 0.0)) for row in group]) if group else 1.0
        if group:
            counts = (str(sum(ratio < limit for ratio in ratios)) for limit in (0.9, 0.8))
            numbers = f"{geomean(ratios):.3f}", f"{min(ratios):.3f}", *counts, f"{expected:.3f}"
            shown.add_row(how, str(len(group)), *numbers)
    SHOWN.print(shown)


def write(path: Path, device: Device, rows: Sequence[Row]) -> None:
    """Writes the rows with their summary."""
    ratios, origin = [row.ratio for row in rows], targets.here()
    content = {
        **provenance(device.name, origin.driver, origin.compiler),
        "source": origin.source,
        "rows": [asdict(row) for row in rows],
        "geomean": geomean(ratios),
        "worst": min(ratios),
    }
    path.write_text(json.dumps(content, indent=1) + "\n")
