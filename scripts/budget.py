"""Tunes the products of a Llama-shaped model under one budget, and one by one.

    python scripts/budget.py --budget 120 --json docs/results/h200/budget.json

The model is that of `model.py` in bf16: four layers of the sizes of Llama 3 8B and the output
layer. Each product counts as often as the model has it. The gain is cuBLAS's time of all products
over that of the tuned kernels, both from the final rounds of the searches.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from model import HIDDEN, INTERMEDIATE, KEYS, LAYERS, VOCABULARY
from provenance import provenance

import autotune
from autotune.cuda.compiler import compiler_version
from autotune.measure import devices
from autotune.problem import Problem

COUNTS = {
    (HIDDEN, HIDDEN): 2 * LAYERS,
    (KEYS, HIDDEN): 2 * LAYERS,
    (INTERMEDIATE, HIDDEN): 2 * LAYERS,
    (HIDDEN, INTERMEDIATE): LAYERS,
    (VOCABULARY, HIDDEN): 1,
}
"""How often the model has a product, by N and K."""


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Rows of the input; repeatable.")] = None,
    budget: Annotated[float, typer.Option(help="Seconds for all products together.")] = 120.0,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints the seconds of both, and their gain over cuBLAS for each number of rows."""
    counts = {
        f"{m}x{n}x{k}:bf16:nt": count
        for m in rows or (16, 2048)
        for (n, k), count in COUNTS.items()
    }

    def shared() -> None:
        autotune.tune(counts, seconds=budget, progress=False)

    def alone() -> None:
        for product in counts:
            autotune.tune(product, progress=False)

    measured = {name: tuned(call, counts) for name, call in (("shared", shared), ("alone", alone))}
    for name, result in measured.items():
        gains = ", ".join(f"{m} rows {gain:.3f}" for m, gain in result["gain"].items())
        typer.echo(f"{name}: {result['seconds']:.1f} s, over cuBLAS {gains}")
    if out:
        device = devices.probe(0).name
        origin = provenance(device, devices.driver_version(), compiler_version(), commit=commit)
        content = {**origin, "budget_s": budget, **measured}
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def tuned(search: Callable[[], None], counts: dict[str, int]) -> dict[str, Any]:
    """Tunes with an empty cache; returns the seconds, the gain for each number of rows, and the
    figures of each product."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ["AUTOTUNE_CACHE_DIR"] = cache
        began = time.monotonic()
        search()
        seconds = time.monotonic() - began
        products = {product: figures(product, count) for product, count in counts.items()}
    ours, cublas = defaultdict[int, float](float), defaultdict[int, float](float)
    for product, row in products.items():
        m = Problem.parse(product).m
        ours[m] += row["count"] * row["ours_us"]
        cublas[m] += row["count"] * row["cublas_us"]
    gains = {m: cublas[m] / ours[m] for m in ours}
    return {"seconds": seconds, "gain": gains, "products": products}


def figures(product: str, count: int) -> dict[str, Any]:
    """A product's count and the figures of its record: times, configuration and search."""
    record = autotune.best(product)
    assert record.baseline is not None  # PyTorch or CuPy multiplied beside it
    return {
        "count": count,
        "ours_us": record.best.measurement.time_us,
        "cublas_us": record.baseline.time_us,
        "config": str(record.best.config),
        "trials": record.provenance.trials,
        "seconds": record.provenance.seconds,
    }


if __name__ == "__main__":
    typer.run(main)
