"""Tunes a suite of shapes on the GPU of this machine and times each winner against cuBLAS.

    python scripts/suite.py docs/results/h100/spine-f32.json --budget 40

After tuning, the winner and cuBLAS are timed once more, interleaved on the same buffers, so that
the reported times are not those that the winner was chosen by. The file is written whole after
every shape. The share of the roofline is of the ceilings measured on an H100 80GB HBM3: a pure
FFMA loop at 66.0 TFLOP/s and a device-to-device copy at 2996 GB/s.
"""

from __future__ import annotations

import json
import math
import statistics
import tempfile
from dataclasses import asdict
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
) -> None:
    """Writes OUT and prints it as a table."""
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as empty:
        cache = Path(empty) if cold_start else settings.cache_dir()
        for text in shapes or SPINE:
            rows.append(row(Problem.parse(text), Store(Path(empty)), cache, budget, seed))
            save(out, rows)
            Console(width=160).print(table(rows[-1:]))
    Console(width=160).print(table(rows))
    ratios = [one["ratio"] for one in rows if one["ratio"]]
    if ratios:
        print(f"geometric mean {statistics.geometric_mean(ratios):.3f}, worst {min(ratios):.3f}")


def row(problem: Problem, store: Store, cache: Path, budget: float, seed: int) -> dict[str, Any]:
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
        return result(problem, record, final, runner.baseline(), seconds)


def result(
    problem: Problem,
    record: Record,
    final: Measurement,
    vendor: Measurement | None,
    seconds: float,
) -> dict[str, Any]:
    roofline_us = 1e6 * max(problem.flops / FFMA_CEILING, problem.bytes / COPY_CEILING)
    return {
        "problem": str(problem),
        "time_us": final.time_us,
        "spread_us": final.spread_us,
        "cold_us": final.cold_us,
        "cublas_us": vendor and vendor.time_us,
        "cublas_spread_us": vendor and vendor.spread_us,
        "cublas_cold_us": vendor and vendor.cold_us,
        "ratio": vendor and vendor.time_us / final.time_us,
        "tflops": problem.flops / final.time_us / 1e6,
        "roofline_share": roofline_us / final.time_us,
        "error": final.error,
        "cublas_error": vendor and vendor.error,
        "config": str(record.best.config),
        "trials": record.provenance.trials,
        "seconds": seconds,
        "device": record.device.name,
        "provenance": asdict(record.provenance),
    }


def save(out: Path, rows: list[dict[str, Any]]) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    temporary = out.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows, indent=1) + "\n")
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
            one["problem"].partition(":")[0],
            f"{one['time_us']:.2f} ±{one['spread_us']:.2f}",
            f"{one['cublas_us'] or math.nan:.2f} ±{one['cublas_spread_us'] or math.nan:.2f}",
            f"{one['ratio'] or math.nan:.3f}",
            f"{one['tflops']:.1f}",
            f"{one['roofline_share']:.0%}",
            str(one["trials"]),
            f"{one['seconds']:.0f}",
            one["config"].partition(":")[2],
        )
    return drawn


if __name__ == "__main__":
    typer.run(main)
