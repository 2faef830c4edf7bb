"""Measures the host cost of one call: this package, PyTorch and a bare launch, side by side.

    python scripts/measure/host_cost.py                        64 x 64 x 64 in f32
    python scripts/measure/host_cost.py --shape 1x4096x4096:bf16 --json host.json

It needs a GPU and PyTorch. All calls take turns, in rounds of a hundred, on the same tensors; the
queue of the GPU is drained before each round, so that no call waits for a place in it. A row is the
distribution over the rounds of microseconds a call; `rotating` takes another of 64 outputs each
time.

The bare launch is `cuLaunchKernel` of `cuda.bindings` with arguments packed beforehand. `cuBLASLt`
is a recorded algorithm: the first of its heuristic.
"""

from __future__ import annotations

import itertools
import json
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Annotated

import numpy as np
import typer
from results import of_this_machine
from rich.console import Console
from rich.table import Table

import autotune
from autotune.cuda import compiler
from autotune.cuda.launches import Resolver, pack_arguments
from autotune.device import Device
from autotune.families import registry
from autotune.families.cublaslt import config_of
from autotune.lookup.answer import Answer
from autotune.measure.objective import Objective
from autotune.problem import Problem
from autotune.problem.call import Call
from autotune.runtime import Kernel, Runtime, UntunedWarning, current
from autotune.runtime.matmul import Matmul

CALLS, ROTATION = 100, 64
QUANTILES = {"p5": 5, "median": 50, "p95": 95, "p99": 99}

Timed = Callable[[], object]


def main(
    shape: Annotated[str, typer.Option(help="Problem to run.")] = "64x64x64",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of a hundred calls.")] = 300,
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the figures.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints the host cost of one call."""
    warnings.simplefilter("ignore", UntunedWarning)
    problem = Problem.parse(shape)
    rows = measured(calls(problem), rounds)
    Console(width=120).print(table(problem, rows))
    if out:
        import torch

        content = {
            **of_this_machine(torch.cuda.get_device_name(), commit),
            "torch": torch.__version__,
            "problem": str(problem),
            "rounds": rounds,
            "calls": CALLS,
            "us": rows,
        }
        out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def calls(problem: Problem) -> dict[str, Timed]:
    """The calls that are compared, all on the same tensors."""
    import torch

    dtype = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
    torch.backends.cuda.matmul.allow_tf32 = problem.compute == "tf32"
    kind = dtype[problem.operand_types[0]]
    a = torch.randn(problem.m, problem.k, device="cuda", dtype=kind)
    b = torch.randn(problem.k, problem.n, device="cuda", dtype=kind)
    outs = [torch.empty(problem.m, problem.n, device="cuda", dtype=kind) for _ in range(ROTATION)]
    out, turns = outs[0], itertools.cycle(outs)
    compute, own = problem.compute, autotune.Policy(vendor=False)
    kernel = autotune.kernel(problem.m, problem.n, problem.k, compute=compute, policy=own)
    by_library = library_matmul(problem)
    at = a.data_ptr(), b.data_ptr(), out.data_ptr()
    matmul, mm, launch = autotune.matmul, torch.mm, kernel.launch
    return {
        "cuLaunchKernel": bare(kernel, at),
        "kernel.bind(a, b, out)()": kernel.bind(a, b, out),
        "kernel.launch(addresses)": lambda: launch(*at),
        "kernel(a, b, out)": lambda: kernel(a, b, out),
        "kernel(a, b, out), rotating": lambda: kernel(a, b, next(turns)),
        "matmul(a, b, out)": lambda: matmul(a, b, out, compute=compute, policy=own),
        "matmul(a, b, out), cuBLASLt": lambda: by_library(a, b, out, compute=compute),
        "matmul(a, b)": lambda: matmul(a, b, compute=compute, policy=own),
        "torch.mm(a, b, out=out)": lambda: mm(a, b, out=out),
        "torch.mm(a, b)": lambda: mm(a, b),
    }


def library_matmul(problem: Problem) -> Matmul:
    """A matmul whose record of the problem is the first algorithm of cuBLASLt's heuristic."""
    shared = current().runtime
    library = shared.gpu(0).cublaslt
    with shared.driver.entered(0):
        first, *_ = library.heuristic(problem)
    config = config_of(*first)

    def find(asked: Problem, device: Device, _: Objective) -> Answer:
        return Answer(asked, device, config, "exact", "measured", None, None, "")

    return Matmul(
        Runtime(shared.driver, find, registry.plan, partial(compiler.compile, cache=None))
    )


def bare(kernel: Kernel, at: tuple[int, int, int]) -> Timed:
    """The kernel's single launch through `cuda.bindings`, with packed arguments."""
    from cuda.bindings import driver

    problem, plan = kernel.problem, kernel.plan
    if len(plan.launches) > 1 or plan.workspace or plan.counters:
        raise SystemExit(f"{kernel.config} takes more than one launch or a workspace; give another")
    launch = plan.main
    addresses = dict(zip("abc", at, strict=True))
    pitches = dict(zip("abc", problem.leading_dimensions, strict=True))
    values = Call(addresses, pitches, {}).words()
    runtime = current().runtime
    arguments = Resolver(launch.arguments)(values, runtime.driver.encode)
    ready = pack_arguments(launch.parameters, arguments)
    program = runtime.program(launch.template, runtime.gpu(0).device)
    function = driver.CUfunction(runtime.gpu(0).kernel(program))
    shape = *launch.grid, *launch.block, launch.shared
    start, pointers = driver.cuLaunchKernel, ready.pointers

    def call() -> object:
        return start(function, *shape, 0, pointers, 0), ready

    return call


def measured(calls: Mapping[str, Timed], rounds: int) -> dict[str, dict[str, float]]:
    """Quantiles over the rounds of microseconds per call."""
    import torch

    samples: dict[str, list[float]] = {name: [] for name in calls}
    turns = range(CALLS)
    for _ in range(rounds + 1):
        for name, call in calls.items():
            torch.cuda.synchronize()
            began = perf_counter()
            for _ in turns:
                call()
            samples[name].append((perf_counter() - began) / CALLS * 1e6)
    # The first round compiles and loads.
    return {
        name: {key: float(np.percentile(them[1:], q)) for key, q in QUANTILES.items()}
        for name, them in samples.items()
    }


def table(problem: Problem, rows: Mapping[str, Mapping[str, float]]) -> Table:
    """A row for each call, with its cost over the bare launch and relative to PyTorch."""
    shown = Table(title=f"{problem}: microseconds of the host a call")
    shown.add_column("call")
    for name in (*QUANTILES, "above the launch", "of torch.mm(out=)"):
        shown.add_column(name, justify="right")
    launch = rows["cuLaunchKernel"]["median"]
    torch_mm = rows["torch.mm(a, b, out=out)"]["median"]
    for name, row in rows.items():
        median = row["median"]
        figures = [f"{value:.2f}" for value in row.values()]
        shown.add_row(name, *figures, f"{median - launch:+.2f}", f"{median / torch_mm:.2f}")
    return shown


if __name__ == "__main__":
    typer.run(main)
