"""Times batch-invariant kernels beside cuBLAS, with and without split-K, and beside Triton's.

    python scripts/measure/batch_invariant.py docs/results/h200/batch-invariant.json --layers 3
    python scripts/measure/batch_invariant.py docs/results/h200/batch-invariant.json --page

Linear layers of the models of `shipped.py` are tuned as batch-invariant ranges of M, in bf16 and in
fp8 with scales of rows. Then these take turns, hot, as CUDA graphs:

    ours         the kernels of the range, `Policy(batch_invariant=True)`
    free         with `--free`, our kernels tuned for each M alone, in any order of summation
    cublas       `torch.mm`, in fp8 `torch._scaled_mm`
    workspace    the same with `CUBLAS_WORKSPACE_CONFIG=:16:8`, too little for split-K, in a process
                 of its own
    triton       a persistent kernel with one tile: `batch_invariant_ops` where it is installed and
                 serves the type, else `persistent` of `triton_kernels.py`

Each also multiplies the first rows of A, for 13 numbers of rows. `differing` counts those of the 13
whose results have other bits than the same rows among all. A second run continues: layers that the
file has for this GPU, cuBLAS and these kernel sources are skipped. Models take turns, so that any
prefix has several. `--page` writes the table into `docs/results.md`.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import typer
from apart import Apart, Failed, burst_us, median
from results import geomean, markdown_head, markdown_row, of_this_machine, rows_in, write_table
from shipped import MODELS

import autotune
from autotune.errors import AutotuneError
from autotune.files import write_whole
from autotune.measure import devices, targets
from autotune.problem.arguments import Span

OURS, FREE, CUBLAS, WORKSPACE, TRITON = "ours", "free", "cublas", "workspace", "triton"
TITLES = {
    CUBLAS: "cuBLAS, free choice",
    WORKSPACE: "cuBLAS without split-K",
    TRITON: "Triton, persistent",
    FREE: "ours, any order",
}
"""The columns of the table."""

ROWS = (1, 16, 128, 2048)
CHECKED = (1, 2, 3, 5, 8, 16, 17, 64, 100, 128, 256, 1000, 2048)
"""Rows that are timed, and rows whose bits are compared."""

COMPUTES = {"bf16": "bf16:nt", "f8": "f8:scale=row:nt"}
SMALL_WORKSPACE = {"CUBLAS_WORKSPACE_CONFIG": ":16:8", "CUBLASLT_WORKSPACE_SIZE": "128"}
"""Eight buffers of 16 KiB for cuBLAS, and as much for cuBLASLt."""

ROUNDS, GRAPH = 21, 20
"""Turns of each kernel, and launches in a graph."""

TITLE = "batch invariance"
"""The title of the table in the documents."""

Row = dict[str, Any]


def main(
    out: Annotated[Path, typer.Argument(help="JSON file for the figures.")],
    layers: Annotated[int, typer.Option(help="Number of layers.")] = 3,
    computes: Annotated[str, typer.Option(help="Precisions, separated by commas.")] = "bf16,f8",
    each: Annotated[float, typer.Option(help="Seconds of tuning a layer in a precision.")] = 30.0,
    seconds: Annotated[float, typer.Option(help="No layer starts after these seconds.")] = 3600.0,
    free: Annotated[bool, typer.Option("--free", help="Tune each M alone, too.")] = False,
    page: Annotated[bool, typer.Option("--page", help="Only write the documents' table.")] = False,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints ratios to the time of our batch-invariant kernels, and whose bits differ."""
    if page:
        write_table(TITLE, out, markdown)
        return
    began, origin = perf_counter(), of_this_machine(devices.probe(0).name, commit)
    source = targets.here().source
    made = {"source": source, "device": origin["device"], "cublas": origin["cublas"]}
    rows = rows_in(out, made)
    done = {(row["compute"], *row["layer"]) for row in rows}
    by_turns = [layer for turn in zip_longest(*MODELS.values()) for layer in turn if layer]
    wanted = [(compute, *layer) for layer in by_turns[:layers] for compute in computes.split(",")]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        os.environ["AUTOTUNE_CACHE_DIR"] = name  # an empty cache
        for compute, n, k in wanted:
            if (compute, n, k) in done or perf_counter() - began > seconds:
                continue
            try:
                rows.append(layer_row(compute, n, k, each, free))
            except (Failed, AutotuneError) as error:
                typer.echo(f"{n}x{k} {compute}: {error}")
                continue
            content = {**origin, "source": source, "summary": summary(rows), "rows": rows}
            write_whole(out, (json.dumps(content, indent=1) + "\n").encode())
            typer.echo(line(rows[-1]))
    typer.echo("\n".join(markdown(rows)))


def layer_row(compute: str, n: int, k: int, each: float, free: bool) -> Row:
    """The figures of a layer, tuned in this process and timed in two others."""
    low, high = ROWS[0], ROWS[-1]
    suffix = f"{n}x{k}:{COMPUTES[compute]}"
    span = Span.parse(f"{low}..{high}x{suffix}")
    tuned = autotune.tune(span, seconds=each, batch_invariant=True, progress=False)
    if free:
        for m in ROWS:
            autotune.tune(f"{m}x{suffix}", seconds=each / len(ROWS), progress=False)
    cores = sorted(os.sched_getaffinity(0))
    here = OURS, CUBLAS, TRITON, *([FREE] if free else [])
    with ExitStack() as opened:
        sides = []
        for names, environment in ((here, {}), ((WORKSPACE,), SMALL_WORKSPACE)):
            side = Apart(partial(Side, compute, n, k, names), environment, cores)
            opened.callback(side.close)
            sides.append((side, names))
        differing: dict[str, int] = {}
        for side, _ in sides:
            differing |= side("check")
        times = {str(m): timed(sides, m) for m in ROWS}
    return {
        "compute": compute,
        "layer": [n, k],
        "order": tuned.order,
        "checked": len(CHECKED),
        "differing": differing,
        "times": times,
    }


def timed(sides: Sequence[tuple[Apart, Sequence[str]]], m: int) -> dict[str, Row]:
    """Median microseconds of each kernel for `m` rows, and half the interquartile range."""
    samples: dict[str, list[float]] = {}
    for turn in range(ROUNDS):
        for side, names in sides[:: -1 if turn % 2 else 1]:
            for name in names:
                samples.setdefault(name, []).append(side("sample", name, m))
    return {name: median(taken) for name, taken in samples.items()}


class Side:
    """The kernels of one process on the operands of a layer.

    Args:
        compute, n, k: precision and sizes.
        names: the kernels.
        device: where the operands lie.
    """

    def __init__(
        self, compute: str, n: int, k: int, names: Sequence[str], device: str = "cuda"
    ) -> None:
        import torch

        self.torch, self.names = torch, names
        self.graphs: dict[tuple[str, int], Any] = {}
        self.operands: tuple[Any, ...]
        torch.manual_seed(0)
        with torch.device(device):
            a, b = (torch.randn(rows, k) for rows in (CHECKED[-1], n))
            if compute == "bf16":
                self.operands = a.bfloat16(), b.bfloat16(), None, None
            else:
                scales = (torch.rand(rows, 1) + 0.5 for rows in (CHECKED[-1], n))
                self.operands = *(x.to(torch.float8_e4m3fn) for x in (a, b)), *scales

    def call(self, name: str, m: int) -> Callable[[], Any]:
        """The product of the first `m` rows by a kernel."""
        torch = self.torch
        a, b, scale_a, scale_b = self.operands
        rows, columns = a[:m], b.t()
        scales: dict[str, Any] = {}
        if scale_a is not None:
            scales = {"scale_a": scale_a[:m], "scale_b": scale_b.t(), "out_dtype": torch.bfloat16}
        if name in (OURS, FREE):
            policy = autotune.Policy(batch_invariant=name == OURS, vendor=False)
            return partial(autotune.matmul, rows, columns, policy=policy, **scales)
        if name == TRITON:
            return self.triton(rows, b, scale_a, scale_b)
        return partial(torch._scaled_mm if scales else torch.mm, rows, columns, **scales)

    def triton(self, rows: Any, b: Any, scale_a: Any, scale_b: Any) -> Callable[[], Any]:
        """The product by the public Triton kernel, else by ours."""
        if scale_a is None:
            try:
                from batch_invariant_ops import matmul_persistent
            except ImportError:
                pass
            else:
                return partial(matmul_persistent, rows, b.t())
        from triton_kernels import persistent_product

        return partial(persistent_product, self.torch, rows, b, scale_a, scale_b)

    def check(self) -> dict[str, int]:
        """For each kernel with how many numbers of rows bits differ.

        Raises:
            ValueError: if a result is wrong.
        """
        a, b, scale_a, scale_b = self.operands
        exact = a.double() @ b.double().t()
        if scale_a is not None:
            exact = exact * scale_a * scale_b.t()
        differing = {}
        for name in self.names:
            whole = self.call(name, CHECKED[-1])()
            error = float((whole.double() - exact).norm() / exact.norm())
            if not error < 0.01:  # bf16 rounds by at most 0.004
                raise ValueError(f"{name} has a relative error of {error:.2g}")
            results = ((m, self.call(name, m)()) for m in CHECKED)
            differing[name] = sum(not self.torch.equal(c, whole[:m]) for m, c in results)
        return differing

    def sample(self, name: str, m: int) -> float:
        """Microseconds of a launch in a CUDA graph of several."""
        if (name, m) not in self.graphs:
            self.graphs[name, m] = self.captured(self.call(name, m))
        return burst_us(self.torch, self.graphs[name, m], 1, 100.0) / GRAPH

    def captured(self, run: Callable[[], Any]) -> Callable[[], None]:
        """A graph of several launches, after the kernel has been compiled and run."""
        cuda = self.torch.cuda
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            run()
        cuda.current_stream().wait_stream(stream)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for _ in range(GRAPH):
                run()
        graph.replay()
        return graph.replay  # type: ignore[no-any-return]


def ratios(rows: Sequence[Row], compute: str, name: str, m: int) -> list[float]:
    """Times of a kernel over those of ours, for each layer that has both."""
    times = [row["times"][str(m)] for row in rows if row["compute"] == compute]
    return [found[name]["us"] / found[OURS]["us"] for found in times if name in found]


def summary(rows: Sequence[Row]) -> Row:
    """For each precision and kernel the geometric means, and with how many rows bits differ."""
    return {
        compute: {
            name: {
                "by_rows": {m: geomean(ratios(rows, compute, name, m)) for m in ROWS},
                "geomean": geomean([r for m in ROWS for r in ratios(rows, compute, name, m)]),
                "differing": sum(
                    row["differing"][name] for row in rows if row["compute"] == compute
                ),
            }
            for name in TITLES
            if ratios(rows, compute, name, ROWS[0])
        }
        for compute in dict.fromkeys(row["compute"] for row in rows)
    }


def line(row: Row) -> str:
    """A layer in one line."""
    figures = []
    for m, times in row["times"].items():
        others = ", ".join(
            f"{name} {item['us'] / times[OURS]['us']:.2f}"
            for name, item in times.items()
            if name != OURS
        )
        figures.append(f"{m} rows {times[OURS]['us']:.2f} us ({others})")
    n, k = row["layer"]
    return f"{n}x{k} {row['compute']}: {'; '.join(figures)}; differing {row['differing']}"


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The table of the documents: times over ours, and whether bits depend on the batch."""
    found = summary(rows)
    names = [name for name in TITLES if any(name in kinds for kinds in found.values())]
    yield from markdown_head("time over ours", *(TITLES[name] for name in names))
    for compute, kinds in found.items():
        cases = sum(row["checked"] for row in rows if row["compute"] == compute)
        lines = {
            f"{m} rows": [f"{kind['by_rows'][m]:.2f}" for kind in kinds.values()] for m in ROWS
        }
        lines["all"] = [f"**{kind['geomean']:.2f}**" for kind in kinds.values()]
        lines["other bits"] = [f"{kind['differing']} of {cases}" for kind in kinds.values()]
        for title, texts in lines.items():
            cells = dict(zip(kinds, texts, strict=True))
            yield markdown_row(f"`{compute}`, {title}", *(cells.get(name, "") for name in names))


if __name__ == "__main__":
    typer.run(main)
