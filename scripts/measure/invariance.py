"""Measures kernels of batch-invariant ranges beside freely tuned ones.

    python scripts/measure/invariance.py docs/results/h200/invariance.json --layers 6

tunes linear layers of the models of `shipped_problems.py` in bf16 as batch-invariant ranges of M,
and then each number of rows by itself. The kernels of both are timed interleaved, hot. A layer took
57 s on an H200; the file is written after each, and a second run continues. Models take turns, so
that any prefix has several.
"""

from __future__ import annotations

import json
import os
import tempfile
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from time import monotonic
from typing import Annotated

import typer
from results import geomean, of_this_machine, rows_in
from shipped import MODELS, tune_at
from untuned import VENDOR, timed

import autotune
from autotune.measure import devices, targets
from autotune.measure.measurement import Measurement
from autotune.measure.targets import TargetOpener
from autotune.problem import Problem
from autotune.records import Store
from autotune.tuning.loop import Search

ROWS = (1, 16, 128, 2048)
PRECISION = "bf16:nt"


@dataclass(frozen=True)
class Row:
    """A product timed with the range's kernel and with its own.

    Attributes:
        problem: its text.
        ratio: the free kernel's time over the range's; below 1 the order of summation costs time.
        invariant_us, free_us, cublas_us: their times, and that of cuBLAS in the same round.
        invariant, free: their configurations.
    """

    problem: str
    ratio: float
    invariant_us: float
    free_us: float
    cublas_us: float | None
    invariant: str
    free: str


def main(
    out: Annotated[Path, typer.Argument(help="JSON file for the rows.")],
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 16,
    each: Annotated[float, typer.Option(help="Seconds of each search, of either kind.")] = 5.0,
    seconds: Annotated[float, typer.Option(help="No layer starts after these seconds.")] = 3600.0,
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints the ratio at each number of rows."""
    began, origin = monotonic(), targets.here()
    where = targets.resolve(device)
    rows = [Row(**fields) for fields in rows_in(out, origin.source)]
    done = {row.problem for row in rows}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        TargetOpener(device) as places,
    ):
        os.environ["AUTOTUNE_CACHE_DIR"] = name  # an empty cache
        for columns, inner in by_turns()[:layers]:
            problems = [Problem.parse(f"{m}x{columns}x{inner}:{PRECISION}") for m in ROWS]
            if done >= {*map(str, problems)}:
                continue
            if monotonic() - began > seconds:
                break
            text = f"{ROWS[0]}..{ROWS[-1]}x{columns}x{inner}:{PRECISION}"
            autotune.tune(text, device=device, seconds=each, batch_invariant=True, progress=False)
            for problem in problems:
                rows.append(row_of(problem, device, places, Store(Path(name) / "free"), each))
                typer.echo(f"{problem!s:26} {rows[-1].ratio:.3f}  {rows[-1].invariant_us:.2f} us")
            content = {
                **of_this_machine(where.name, commit),
                "source": origin.source,
                "geomean": geomean([row.ratio for row in rows]),
                "worst": min(row.ratio for row in rows),
                "rows": [asdict(row) for row in rows],
            }
            out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    for m in ROWS:
        ratios = [row.ratio for row in rows if Problem.parse(row.problem).m == m]
        typer.echo(f"{m} rows: geomean {geomean(ratios):.3f}, worst {min(ratios):.3f}")


def by_turns() -> list[tuple[int, int]]:
    """Columns and inner sizes of the layers, a layer of each model in turn."""
    return [layer for turn in zip_longest(*MODELS.values()) for layer in turn if layer]


def row_of(problem: Problem, device: str, places: TargetOpener, store: Store, each: float) -> Row:
    """Tunes a problem freely and times its kernel beside that of the range."""
    record = tune_at(problem, places, store, Search(seconds=each))
    ordered = autotune.choose(problem, device=device, batch_invariant=True).config
    outcomes = timed(
        {"invariant": ordered, "free": record.best.config}, problem, places.current.runner
    )
    times = {}
    for kind, outcome in outcomes.items():
        assert isinstance(outcome, Measurement), f"{problem}, {kind}: {outcome}"
        times[kind] = outcome.time_us
    return Row(
        problem=str(problem),
        ratio=times["free"] / times["invariant"],
        invariant_us=times["invariant"],
        free_us=times["free"],
        cublas_us=times.get(VENDOR),
        invariant=str(ordered),
        free=str(record.best.config),
    )


if __name__ == "__main__":
    typer.run(main)
