"""Tunes a suite of shapes on the GPU of this machine and times each winner against cuBLAS.

    python scripts/suite.py docs/results/h100/spine-f32.json --budget 40

After tuning, the winner and cuBLAS are timed once more, interleaved on the same buffers, so that
the reported times are not those that the winner was chosen by. The file is written whole after
every shape; `--commit` says what the kernels and the search were built from. The share of the
roofline is of the ceilings measured on an H100 80GB HBM3: a pure FFMA loop at 66.0 TFLOP/s and a
device-to-device copy at 2996 GB/s.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from autotune import settings, targets
from autotune.compiler import compile
from autotune.evaluate import prepare
from autotune.problem import Problem
from autotune.runner import Candidate, Measurement
from autotune.store import Record, Store
from autotune.tuning import Options, tune

SPINE = (
    "1024x1024x1024",
    "2048x2048x2048",
    "4096x4096x4096",
    "8192x8192x8192",
    "1000x1000x1000",
    "1023x1025x1027",
    "128x4096x14336",
    "2048x512x8192",
    "64x4096x4096",
    "64x64x65536",
)
FFMA_CEILING = 66.0e12
COPY_CEILING = 2996e9


def main(
    out: Path,
    shapes: Annotated[list[str] | None, typer.Option(help="Instead of the built-in ten.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds of tuning a shape.")] = 40.0,
    seed: int = 0,
    cold_start: Annotated[bool, typer.Option(help="Begin with an empty program cache.")] = True,
    commit: Annotated[str, typer.Option(help="Recorded with the results.")] = "",
) -> None:
    """Writes OUT and prints it as a table."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as empty:
        cache = Path(empty) if cold_start else settings.cache_dir()
        for text in shapes or SPINE:
            problem = Problem.parse(text)
            record, one = row(problem, Store(Path(empty)), cache, budget, seed)
            rows.append(one)
            save(out, suite(record, rows, commit))
            Console(width=160).print(table([one]))
    Console(width=160).print(table(rows))
    print("geometric mean {geomean}, worst {worst}".format_map(summary(rows)))


def suite(record: Record, rows: list[dict[str, Any]], commit: str) -> dict[str, Any]:
    """The file: where and with what it was measured, the rows, and their summary."""
    return {
        "device": record.device.name,
        "driver": record.provenance.driver,
        "toolkit": record.provenance.compiler,
        "commit": commit,
        "source": record.provenance.source,
        "date": record.provenance.date,
        "rows": rows,
        **summary(rows),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, float | None]:
    ratios = [one["ratio"] for one in rows if one["ratio"]]
    geomean = statistics.geometric_mean(ratios) if ratios else None
    return {"geomean": geomean, "worst": min(ratios, default=None)}


def row(
    problem: Problem, store: Store, cache: Path, budget: float, seed: int
) -> tuple[Record, dict[str, Any]]:
    """One shape: tuned, then timed again beside cuBLAS."""
    began = monotonic()
    compiled = partial(compile, cache=cache)
    options = Options(budget_s=budget, seed=seed)
    with targets.opened(problem) as target:
        runner = target.runner
        record = tune(problem, runner, store, options, compile=compiled, origin=target.origin)
        seconds = monotonic() - began
        candidate = prepare(record.best.config, problem, runner, compiled)
        assert isinstance(candidate, Candidate)
        (final,) = runner.rematch([candidate])
        assert isinstance(final, Measurement)
        return record, result(problem, record, final, runner.baseline(), seconds)


def result(
    problem: Problem,
    record: Record,
    final: Measurement,
    vendor: Measurement | None,
    seconds: float,
) -> dict[str, Any]:
    roofline_us = 1e6 * max(problem.flops / FFMA_CEILING, problem.bytes / COPY_CEILING)
    return {
        "shape": [problem.m, problem.n, problem.k],
        "compute": problem.compute,
        "layout": problem.layout,
        "ours_us": final.time_us,
        "cublas_us": vendor and vendor.time_us,
        "ratio": vendor and vendor.time_us / final.time_us,
        "cold": {
            "ours_us": final.cold_us,
            "cublas_us": vendor and vendor.cold_us,
            "ratio": vendor and _ratio(vendor.cold_us, final.cold_us),
        },
        "spread": {"ours_us": final.spread_us, "cublas_us": vendor and vendor.spread_us},
        "tflops": problem.speed(final.time_us) / 1e12,
        "roofline_share": roofline_us / final.time_us,
        "error": final.error,
        "reference_error": vendor and vendor.error,
        "trials": record.provenance.trials,
        "tune_s": seconds,
        "config": str(record.best.config),
    }


def _ratio(theirs: float | None, ours: float | None) -> float | None:
    return theirs / ours if theirs and ours else None


def save(out: Path, made: dict[str, Any]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_suffix(".tmp")
    temporary.write_text(json.dumps(made, indent=1) + "\n")
    temporary.replace(out)


def table(rows: list[dict[str, Any]]) -> Table:
    drawn = Table()
    for name in (
        "shape",
        "us",
        "cuBLAS us",
        "ratio",
        "TFLOP/s",
        "roofline",
        "tried",
        "s",
        "config",
    ):
        drawn.add_column(name, justify="left" if name in ("shape", "config") else "right")
    for one in rows:
        drawn.add_row(
            "x".join(map(str, one["shape"])),
            f"{one['ours_us']:.2f} ±{one['spread']['ours_us']:.2f}",
            f"{one['cublas_us'] or math.nan:.2f} ±{one['spread']['cublas_us'] or math.nan:.2f}",
            f"{one['ratio'] or math.nan:.3f}",
            f"{one['tflops']:.1f}",
            f"{one['roofline_share']:.0%}",
            str(one["trials"]),
            f"{one['tune_s']:.0f}",
            one["config"].partition(":")[2],
        )
    return drawn


if __name__ == "__main__":
    typer.run(main)
