"""Measures quantising: its bandwidth against that of a copy, and what it adds to a product.

    python scripts/measure/quantizing.py --json quantizing.json
    python scripts/measure/quantizing.py --size 4096 --source f32 --problem 64x4096x4096

It needs a GPU and PyTorch. All that is compared takes turns, as replays of CUDA graphs; a row has
the medians. For the bandwidth, matrices take turns in each graph, so that none is in L2 from its
last use. A quantisation moves the bytes of its matrix, its result and its scales; a copy moves
those of the matrix twice. The products of a graph take turns with several weights likewise:

    product      A is quantised already
    quantised    A in bf16 is quantised on the way in
    separate     `autotune.quantize`, then the product
    torch        quantised by operations of PyTorch, then `torch._scaled_mm`
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import Annotated, Any

import typer
from results import of_this_machine
from rich.console import Console
from rich.table import Table

import autotune
from autotune.problem import Problem
from autotune.runtime import UntunedWarning

SIZES = (4096, 8192, 16384)
PROBLEM = "16x4096x14336"
WAYS = ("product", "quantised", "separate", "torch")
MEMORY = 2**29
"""Bytes that the matrices, or the weights, of a graph take together at least."""
RUNS = 8
"""Runs in a graph at least."""

Run = Callable[[], object]


def main(
    size: Annotated[list[int] | None, typer.Option(help="Rows and columns; repeatable.")] = None,
    source: Annotated[list[str] | None, typer.Option(help="bf16, f16 or f32; repeatable.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="e4m3, e5m2, int8; repeatable.")] = None,
    scale: Annotated[list[str] | None, typer.Option(help="row, block, tensor; repeatable.")] = None,
    problem: Annotated[
        list[str] | None, typer.Option(help="MxNxK of a product in f8; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, in which all take turns.")] = 15,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints shares of the copy bandwidth, and microseconds of products."""
    import torch

    warnings.simplefilter("ignore", UntunedWarning)
    kinds = [
        (from_type, to, granularity)
        for from_type in source or ("bf16",)
        for to in target or ("e4m3", "int8")
        for granularity in scale or ("row", "block", "tensor")
    ]
    with torch.no_grad():
        bandwidths = [
            row for side in size or SIZES for row in bandwidth(torch, side, kinds, rounds)
        ]
        products = [added(torch, text, rounds) for text in problem or (PROBLEM,)]
    for shown in (bandwidth_table(bandwidths), product_table(products)):
        Console(width=120).print(shown)
    if out:
        origin = of_this_machine(torch.cuda.get_device_name(), commit)
        content = {**origin, "rounds": rounds, "bandwidth": bandwidths, "products": products}
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def bandwidth(
    torch: Any, side: int, kinds: Sequence[tuple[str, str, str]], rounds: int
) -> list[dict[str, Any]]:
    """A row for each kind of quantisation of square matrices."""
    rows = []
    for source in dict.fromkeys(kind[0] for kind in kinds):
        dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[source]
        count = ceil(MEMORY / (side * side * dtype.itemsize))
        matrices = [torch.randn(side, side, device="cuda").to(dtype) for _ in range(count)]
        runs: dict[str, list[Run]] = {
            "copy": [partial(torch.empty_like(x).copy_, x) for x in matrices]
        }
        served = [kind for kind in kinds if kind[0] == source]
        bytes_of = {}
        for kind in served:
            results = [autotune.quantize(x, *kind[1:]) for x in matrices]
            runs[" ".join(kind)] = [
                partial(autotune.quantize, x, *kind[1:], out=result)
                for x, result in zip(matrices, results, strict=True)
            ]
            arrays = matrices[0], *results[0]
            bytes_of[kind] = sum(array.numel() * array.element_size() for array in arrays)
        times = timed(torch, runs, rounds)
        copied = 2 * side * side * dtype.itemsize / times["copy"]
        for kind in served:
            us = times[" ".join(kind)]
            reached = bytes_of[kind] / us
            rows.append(
                {
                    "shape": [side, side],
                    **dict(zip(("source", "target", "scale"), kind, strict=True)),
                    "us": us,
                    "gb_s": reached / 1e3,
                    "copy_gb_s": copied / 1e3,
                    "share": reached / copied,
                }
            )
    return rows


def added(torch: Any, text: str, rounds: int) -> dict[str, Any]:
    """The row of a product in f8 with scales a row."""
    m, n, k = map(int, text.split("x"))
    problem = Problem(m, n, k, "f8", "nt", scale="row")
    autotune.warmup([problem])
    count = ceil(MEMORY / (n * k))
    x = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    weights = [autotune.quantize(torch.randn(n, k, device="cuda")) for _ in range(count)]
    q, of_q = autotune.quantize(x)
    out = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    policy = autotune.Policy(vendor=False, dependent=True)
    multiply = partial(autotune.matmul, policy=policy)

    def separate(w: Any, of_w: Any) -> None:
        autotune.quantize(x, out=(q, of_q))
        multiply(q, w.t(), out, scale_a=of_q, scale_b=of_w)

    def by_torch(w: Any, of_w: Any) -> None:
        largest = x.abs().amax(1, keepdim=True).float()
        of_x = largest / 448
        codes = (x.float() * (448 / largest)).to(torch.float8_e4m3fn)
        torch._scaled_mm(codes, w.t(), of_x, of_w[None], out_dtype=torch.bfloat16)

    runs: dict[str, list[Run]] = {name: [] for name in WAYS}
    for w, of_w in weights:
        b = w.t()
        scales = {"scale_a": of_q, "scale_b": of_w}
        runs["product"].append(partial(multiply, q, b, out, **scales))
        runs["quantised"].append(partial(multiply, x, b, out, compute="f8", scale_b=of_w))
        runs["separate"].append(partial(separate, w, of_w))
        runs["torch"].append(partial(by_torch, w, of_w))
    times = timed(torch, runs, rounds)
    config = str(autotune.kernel(problem).config)
    return {"problem": str(problem), "config": config, "us": times}


def timed(torch: Any, runs: Mapping[str, Sequence[Run]], rounds: int) -> dict[str, float]:
    """Median microseconds of a run of each name; all take turns."""
    graphs = {name: captured(torch, sequence) for name, sequence in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, (graph, count) in graphs.items():
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            samples[name].append(1e3 * begin.elapsed_time(end) / count)
    return {name: statistics.median(times) for name, times in samples.items()}


def captured(torch: Any, runs: Sequence[Run]) -> tuple[Any, int]:
    """A graph of the runs, repeated to `RUNS` at least, and how many it has."""
    sequence = list(runs) * ceil(RUNS / len(runs))
    for run in runs:
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in sequence:
            run()
    return graph, len(sequence)


def bandwidth_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The bandwidth of each quantisation beside that of a copy."""
    shown = Table(title="bandwidth of quantising")
    for name in ("shape", "source", "target", "scale"):
        shown.add_column(name)
    for name in ("us", "GB/s", "copy GB/s", "share"):
        shown.add_column(name, justify="right")
    for row in rows:
        words = "x".join(map(str, row["shape"])), row["source"], row["target"], row["scale"]
        figures = f"{row['us']:.1f}", f"{row['gb_s']:.0f}", f"{row['copy_gb_s']:.0f}"
        shown.add_row(*words, *figures, f"{row['share']:.1%}")
    return shown


def product_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The time of a product, and of each way to quantise A before it."""
    shown = Table(title="us a product")
    shown.add_column("problem")
    for name in (*WAYS, "added"):
        shown.add_column(name, justify="right")
    for row in rows:
        times = row["us"]
        cost = times["quantised"] / times["product"] - 1
        shown.add_row(row["problem"], *(f"{times[name]:.2f}" for name in WAYS), f"{cost:.1%}")
    return shown


if __name__ == "__main__":
    typer.run(main)
