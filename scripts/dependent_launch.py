"""Measures what programmatic dependent launch saves on a chain of products.

    python scripts/dependent_launch.py --json dependent-launch.json
    python scripts/dependent_launch.py --shape 512x512x512:f16

It needs a GPU of compute capability 9.0 and PyTorch. Each product is the A of the next, so N is K.
A chain runs as a replay of a CUDA graph, and as launches on a stream that wait behind a sleeping
kernel, so that the host's time does not count. Plain and dependent launches and `torch.mm` take
turns; a row has the medians in microseconds a product. The results of the chains must agree bit
for bit.
"""

from __future__ import annotations

import json
import statistics
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from provenance import provenance
from rich.console import Console
from rich.table import Table

import autotune
from autotune.cuda.compiler import compiler_version
from autotune.measure import devices
from autotune.problem import Problem
from autotune.runtime import UntunedWarning

PRODUCTS = 8
CHAINS = 5
"""Chains that are timed together."""
SLEEP = 1_500_000
"""Cycles of the sleeping kernel, longer than the host needs for the launches."""
SHAPES = ("256x256x256", "512x512x512", "1024x1024x1024", "16x4096x4096", "1023x1023x1023")

DEPENDENT = autotune.Policy(dependent=True)

Product = Callable[[], object]


def main(
    shape: Annotated[
        list[str] | None, typer.Option(help="A problem instead of the built-in ones; repeatable.")
    ] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds, in which all take turns.")] = 25,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints the time of a product in a chain of eight."""
    import torch

    warnings.simplefilter("ignore", UntunedWarning)
    problems = [Problem.parse(text) for text in shape or (f"{text}:bf16" for text in SHAPES)]
    autotune.warmup(problems)
    rows = [measured(torch, problem, rounds) for problem in problems]
    Console(width=120).print(table(rows))
    if out:
        name, driver = torch.cuda.get_device_name(), devices.driver_version()
        origin = provenance(name, driver, compiler_version(), commit=commit)
        content = {**origin, "products": PRODUCTS, "rounds": rounds, "rows": rows}
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def measured(torch: Any, problem: Problem, rounds: int) -> dict[str, Any]:
    """The row of a problem."""
    kernel = autotune.kernel(problem)
    operands = _operands(torch, problem)
    ways: dict[str, Sequence[Product]] = {
        "plain": [kernel.bind(*product) for product in operands],
        "dependent": [kernel.bind(*product, policy=DEPENDENT) for product in operands],
        "torch.mm": [partial(torch.mm, a, b, out=c) for a, b, c in operands],
    }
    graphs = {name: _captured(torch, products) for name, products in ways.items()}
    runs: dict[str, Mapping[str, Callable[[], None]]] = {
        "graph_us": {name: graph.replay for name, graph in graphs.items()},
        "stream_us": {name: partial(_run, products) for name, products in ways.items()},
    }
    samples: dict[str, dict[str, list[float]]] = {
        kind: {name: [] for name in ways} for kind in runs
    }
    for _ in range(rounds):
        for kind, named in runs.items():
            for name, run in named.items():
                samples[kind][name].append(_timed(torch, run))
    result, expected = operands[-1][2], None
    for name in ("plain", "dependent"):
        result.zero_()
        graphs[name].replay()
        expected = result.clone() if expected is None else expected
        if not torch.equal(result, expected):
            raise SystemExit(f"{problem}: dependent launches gave other bits")
    medians = {
        kind: {name: statistics.median(times) for name, times in named.items()}
        for kind, named in samples.items()
    }
    return {"problem": str(problem), "config": str(kernel.config), **medians}


def _operands(torch: Any, problem: Problem) -> list[tuple[Any, Any, Any]]:
    """A, B and C of each product of a chain."""
    if problem.n != problem.k or problem.batch > 1 or problem.layout != "nn":
        raise SystemExit(f"{problem}: a chain needs N = K and single matrices in layout nn")
    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    dtype = kinds[problem.operand_types[0]]
    rows = [torch.randn(problem.m, problem.k, device="cuda").to(dtype) for _ in range(PRODUCTS + 1)]
    scale = problem.k**-0.5
    weights = [
        torch.randn(problem.k, problem.n, device="cuda").mul(scale).to(dtype)
        for _ in range(PRODUCTS)
    ]
    return list(zip(rows[:-1], weights, rows[1:], strict=True))


def _run(products: Sequence[Product]) -> None:
    for _ in range(CHAINS):
        for product in products:
            product()


def _captured(torch: Any, products: Sequence[Product]) -> Any:
    _run(products)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        _run(products)
    return graph


def _timed(torch: Any, run: Callable[[], None]) -> float:
    """Microseconds a product."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(SLEEP)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return 1e3 * float(begin.elapsed_time(end)) / (PRODUCTS * CHAINS)


def table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The times in a graph and on a stream, and what dependent launches save."""
    shown = Table(title=f"us a product, in chains of {PRODUCTS}")
    shown.add_column("problem")
    for kind in ("graph", "stream"):
        for name in ("plain", "dependent", "saved", "torch.mm"):
            shown.add_column(f"{kind}: {name}" if name == "plain" else name, justify="right")
    for row in rows:
        cells = []
        for times in (row["graph_us"], row["stream_us"]):
            saved = times["plain"] - times["dependent"]
            values = times["plain"], times["dependent"], saved, times["torch.mm"]
            cells += [f"{value:.2f}" for value in values]
        shown.add_row(row["problem"], *cells)
    return shown


if __name__ == "__main__":
    typer.run(main)
