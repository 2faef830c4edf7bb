"""Times a Llama-shaped model in bf16 and with its linear layers in 8 bits, and quantising.

    python scripts/measure/model.py layers --rows 16 --rows 2048 --json model-f8.json
    python scripts/measure/model.py budget --json docs/results/h200/budget.json
    python scripts/measure/model.py quantizing --size 4096 --source f32 --problem 64x4096x4096

The model has four layers of the sizes of Llama 3 8B, without the products of attention, and the
output layer. It runs once as PyTorch has it and once after
`autotune.torch.patch(model, compute=..., scale=..., sample=x, policy=autotune.Policy(tune=True))`,
both as CUDA graphs, on request compiled by `torch.compile`. The model exceeds L2 by far, so weights
are cold.

`linear` is the time of the linear layers by PyTorch's profiler: the time in which a kernel runs
that is none of an elementwise operation. In the patched model that includes the kernels that
quantise, which overlap with the products. `whole` is the time of the graph; `error` is the relative
error of the logits, against those of the model in bf16.

`budget` tunes the products of this model in bf16 under one budget and one by one. It sums the
seconds of each search and the gain over cuBLAS.

`quantizing` measures the bandwidth of quantising against that of a copy, and what it adds to a
product. All that is compared takes turns, as replays of CUDA graphs; a row has the medians. For the
bandwidth, matrices take turns in each graph, so that none is in L2 from its last use. A
quantisation moves the bytes of its matrix, its result and its scales; a copy moves those of the
matrix twice. The products of a graph take turns with several weights likewise:

    product      A is quantised already
    quantised    A in bf16 is quantised on the way in
    separate     `autotune.quantize`, then the product
    torch        quantised by operations of PyTorch, then `torch._scaled_mm`
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from results import of_this_machine
from rich.console import Console
from rich.table import Table

import autotune
from autotune.measure import devices
from autotune.problem import Problem
from autotune.runtime import UntunedWarning

if TYPE_CHECKING:
    import torch

HIDDEN, INTERMEDIATE, KEYS, VOCABULARY = 4096, 14336, 1024, 128256
LAYERS = 4
RUNS = 20
ELEMENTWISE = "elementwise", "triton_", "copy", "memset", "CatArray"
"""Parts of the names of kernels that belong to no linear layer."""


def main(
    rows: Annotated[list[int] | None, typer.Option(help="Rows of the input; repeatable.")] = None,
    compute: Annotated[str, typer.Option(help="f8, f8e5 or i8.")] = "f8",
    scale: Annotated[str, typer.Option(help="row, tensor or block.")] = "row",
    quick: Annotated[bool, typer.Option("--quick", help="Race configurations only.")] = False,
    compiled: Annotated[bool, typer.Option("--compile", help="Compile both models.")] = False,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints times of the linear layers and of the whole model, and the error of the logits."""
    import torch

    warnings.simplefilter("ignore", UntunedWarning)
    model = model_of(torch)
    policy = autotune.Policy(tune="quick" if quick else True)
    options = {"compute": compute, "scale": scale, "policy": policy}
    measured = []
    with torch.inference_mode():
        for number in rows or (16, 64, 2048):
            measured.append(row_of(torch, model, number, options, compiled))
            Console(width=100).print(table(measured))
    if out:
        origin = of_this_machine(torch.cuda.get_device_name(), commit)
        content = {**origin, **options, "compiled": compiled, "layers": LAYERS, "rows": measured}
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def model_of(torch: Any) -> torch.nn.Module:
    """The model, with random weights in bf16."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(HIDDEN, HIDDEN + 2 * KEYS, bias=False)
            self.out = nn.Linear(HIDDEN, HIDDEN, bias=False)
            self.gate_up = nn.Linear(HIDDEN, 2 * INTERMEDIATE, bias=False)
            self.down = nn.Linear(INTERMEDIATE, HIDDEN, bias=False)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x + self.out(self.qkv(x)[..., :HIDDEN])
            gate, up = self.gate_up(x).chunk(2, -1)
            return x + self.down(nn.functional.silu(gate) * up)

    with torch.device("cuda"):
        layers = [Layer() for _ in range(LAYERS)]
        model = nn.Sequential(*layers, nn.Linear(HIDDEN, VOCABULARY, bias=False))
    return model.to(torch.bfloat16).requires_grad_(False)


def row_of(
    torch: Any, model: Any, rows: int, options: dict[str, Any], compiled: bool
) -> dict[str, Any]:
    """The figures of the model for an input of so many rows."""
    x = torch.randn(rows, HIDDEN, device="cuda", dtype=torch.bfloat16)
    expected = model(x)
    before = model_times(torch, model, x, compiled)
    start = time.monotonic()
    with tempfile.TemporaryFile("w") as unread:
        report = autotune.torch.patch(model, sample=x, file=unread, **options)
    seconds = time.monotonic() - start
    after = model_times(torch, model, x, compiled)
    error = (model(x) - expected).double().norm() / expected.double().norm()
    autotune.torch.unpatch(model)
    return {
        "rows": rows,
        "patch_s": seconds,
        "quantised": len(report.replaced),
        "before": before,
        "after": after,
        "gain": {name: before[name] / after[name] for name in before},
        "error": float(error),
    }


def model_times(torch: Any, model: Any, x: Any, compiled: bool) -> dict[str, float]:
    """Microseconds of the linear layers and of the whole model in a CUDA graph."""
    run = torch.compile(model, fullgraph=True) if compiled else model
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(x)
    return {"linear": linear(torch, graph.replay), "whole": whole(torch, graph.replay)}


def whole(torch: Any, replay: Callable[[], None]) -> float:
    """The median time of a replay, in microseconds."""
    samples: list[float] = []
    for _ in range(RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        replay()
        end.record()
        end.synchronize()
        samples.append(1e3 * begin.elapsed_time(end))
    return statistics.median(samples)


def linear(torch: Any, replay: Callable[[], None]) -> float:
    """Microseconds of a replay in which a kernel runs that is not elementwise."""
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        for _ in range(RUNS):
            replay()
        torch.cuda.synchronize()
    spans = [
        (event.time_range.start, event.time_range.end)
        for event in profile.events()
        if event.device_type == torch.autograd.DeviceType.CUDA
        and not any(part.lower() in event.name.lower() for part in ELEMENTWISE)
    ]
    return union(spans) / RUNS


def union(spans: Iterable[tuple[float, float]]) -> float:
    """The length of what the spans cover together."""
    covered, end = 0.0, float("-inf")
    for first, last in sorted(spans):
        covered += max(0.0, last - max(first, end))
        end = max(end, last)
    return covered


def table(measured: list[dict[str, Any]]) -> Table:
    """The figures of each number of rows."""
    shown = Table(title="us in bf16 and in 8 bits")
    for name in ("rows", "linear", "in 8 bits", "gain", "whole", "in 8 bits", "gain", "error"):
        shown.add_column(name, justify="right")
    for row in measured:
        figures = [
            text
            for part in ("linear", "whole")
            for text in (
                f"{row['before'][part]:.1f}",
                f"{row['after'][part]:.1f}",
                f"{row['gain'][part]:.2f}",
            )
        ]
        shown.add_row(str(row["rows"]), *figures, f"{row['error']:.4f}")
    return shown


COUNTS = {
    (HIDDEN, HIDDEN): 2 * LAYERS,
    (KEYS, HIDDEN): 2 * LAYERS,
    (INTERMEDIATE, HIDDEN): 2 * LAYERS,
    (HIDDEN, INTERMEDIATE): LAYERS,
    (VOCABULARY, HIDDEN): 1,
}
"""How often the model has a product, by N and K."""


def budget(
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
        origin = of_this_machine(device, commit)
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


SIZES = (4096, 8192, 16384)
PROBLEM = "16x4096x14336"
WAYS = ("product", "quantised", "separate", "torch")
MEMORY = 2**29
"""Bytes that the matrices, or the weights, of a graph take together at least."""
GRAPH_RUNS = 8
"""Runs in a graph at least."""

Run = Callable[[], object]


def quantizing(
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
    """A graph of the runs, repeated to `GRAPH_RUNS` at least, and how many it has."""
    sequence = list(runs) * ceil(GRAPH_RUNS / len(runs))
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
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("layers")(main)
    app.command("budget")(budget)
    app.command("quantizing")(quantizing)
    app()
