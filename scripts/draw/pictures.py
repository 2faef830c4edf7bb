"""Pictures of the suites, the ladder, the host's cost and the look-ups."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm
from matplotlib.figure import Figure

from autotune.tuning.ladder import load

# Okabe and Ito's colours, which readers with colour blindness tell apart.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
)
INK, MUTED, GRID, GROUND = "#1f2328", "#6b7280", "#e5e7eb", "#ffffff"
IN_DARK = {
    INK: "#e6eaf0",
    MUTED: "#a3afbf",
    GRID: "#3a4250",
    GROUND: "#1e2129",
    BLUE: "#3d9be0",
    SKY: "#9fdcff",
}
"""The colours on pages that are dark; the others stay."""

SETTINGS = {
    "svg.fonttype": "none",
    "font.family": ["DejaVu Sans", "sans-serif"],
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "figure.facecolor": GROUND,
    "figure.constrained_layout.use": True,
}


def canvas(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one drawing, in inches."""
    figure = Figure(figsize=(width, height))
    return figure, figure.add_subplot()


def panels(width: float, height: float, rows: int, columns: int) -> tuple[Figure, list[Axes]]:
    """A figure of several drawings, row by row."""
    figure = Figure(figsize=(width, height))
    axes = figure.subplots(rows, columns, squeeze=False)
    return figure, [drawing for row in axes for drawing in row]


def headline(figure: Figure, text: str) -> None:
    """A title that begins at the left edge, however far in the drawing begins."""
    figure.suptitle(text, x=0.01, ha="left", size=11, weight="bold")


def plain_ticks(axis: Axes, values: list[float], side: str = "x") -> None:
    """Ticks at these values alone, written out in full."""
    labels = [f"{value:,g}" for value in values]
    chosen = axis.xaxis if side == "x" else axis.yaxis
    chosen.set_ticks(values, labels=labels)
    chosen.set_ticks([], minor=True)


ROOT = Path(__file__).resolve().parents[2]
RESULTS_FOLDER = ROOT / "docs" / "results"
FOLDER = ROOT / "docs" / "pictures"
STAMP = re.compile(r"drawn from ([0-9a-f]{64})")


def dark_style() -> str:
    """Style rules by which a picture is dark where the page around it is."""
    rules = (
        # White text stands in coloured cells, whose colours stay.
        f'{"path" * (light == GROUND)}[style*="{part}: {light}"] {{ {part}: {dark} !important }}'
        for light, dark in IN_DARK.items()
        for part in ("fill", "stroke")
    )
    return f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"


@dataclass(frozen=True)
class Picture:
    """A picture of the documents.

    Attributes:
        name: the file's name without `.svg`.
        title: what it shows, for readers who do not see it.
        values: returns everything that is drawn, as JSON can hold it.
        draw: draws these values.
    """

    name: str
    title: str
    values: Callable[[], Any]
    draw: Callable[[Any], Figure]

    @property
    def path(self) -> Path:
        """The file in `docs/pictures`."""
        return FOLDER / f"{self.name}.svg"

    def stamp(self, values: Any) -> str:
        """SHA-256 of the values, of the title and of the code that draws."""
        code = "".join(
            inspect.getsource(sys.modules[name])
            for name in dict.fromkeys((self.draw.__module__, canvas.__module__))
        )
        text = json.dumps([self.title, values, code], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def current(self) -> bool:
        """Whether the file was drawn from today's values by today's code."""
        try:
            found = STAMP.search(self.path.read_text("utf-8"))
        except FileNotFoundError:
            return False
        return found is not None and found[1] == self.stamp(self.values())

    def svg(self) -> str:
        """The picture as SVG; the same values give the same text."""
        values = self.values()
        settings: dict[Any, Any] = {**SETTINGS, "svg.hashsalt": self.name}
        about = {"Title": self.title, "Description": f"drawn from {self.stamp(values)}"}
        target = io.BytesIO()
        with mpl.rc_context(settings):
            figure = self.draw(values)
            figure.savefig(
                target,
                format="svg",
                metadata={**about, "Date": None, "Creator": "scripts/draw/draw.py"},
            )
        text = target.getvalue().decode().replace("</style>", f"\n{dark_style()}</style>", 1)
        lines = text.splitlines()
        return "\n".join(line.rstrip() for line in lines) + "\n"


def result(name: str) -> Any:
    """A file of `docs/results`."""
    return json.loads((RESULTS_FOLDER / name).read_text("utf-8"))


PRECISIONS = ("f32", "tf32x3", "tf32", "f16", "bf16")
CARDS = (("h100", "H100"), ("h200", "H200"))
SUITES = tuple((folder, card, compute) for compute in PRECISIONS for folder, card in CARDS)


def suite_values() -> Any:
    rows = []
    for folder, card, compute in SUITES:
        data = result(f"{folder}/suite-{compute}.json")
        ratios = sorted(round(row["ratio"], 3) for row in data["rows"])
        rows.append({"label": f"{compute}  {card}", "ratios": ratios, "mean": data["geomean"]})
    return rows


def beeswarm(logs: list[float], reach: float = 0.012) -> list[float]:
    """Heights that keep points of nearly the same value apart; `logs` is sorted."""
    heights: list[float] = []
    for index, value in enumerate(logs):
        near = sum(1 for earlier in logs[:index] if value - earlier < reach)
        heights.append((near + 1) // 2 * (0.13 if near % 2 else -0.13))
    return heights


def draw_suite(rows: Any) -> Figure:
    figure, axes = canvas(8.4, 5.6)
    places = [len(rows) - 1 - index - 0.35 * (index // 2) for index in range(len(rows))]
    for place, row in zip(places, rows, strict=True):
        ratios = row["ratios"]
        colours = [BLUE if ratio >= 1 else ORANGE for ratio in ratios]
        heights = [place + h for h in beeswarm([float(np.log10(r)) for r in ratios])]
        axes.scatter(ratios, heights, s=16, c=colours, linewidths=0, alpha=0.85)
        axes.plot([row["mean"]] * 2, [place - 0.4, place + 0.4], color=INK, linewidth=2)
        axes.text(5.35, place, f"{row['mean']:.2f}", size=9, weight="bold", va="center")
    axes.text(5.35, 9.75, "mean", size=9, va="center")
    axes.axvline(1, color=MUTED, linewidth=1, linestyle="--")
    axes.set_xscale("log")
    axes.set_xlim(0.75, 5.2)
    plain_ticks(axes, [0.8, 1, 1.25, 1.5, 2, 3, 4, 5])
    axes.set_yticks(places, [row["label"] for row in rows])
    axes.set_ylim(places[-1] - 0.6, 10)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("cuBLAS's time over ours; a point is a shape, the bar the geometric mean")
    headline(figure, "27 shapes in each precision: right of the line the tuned kernel is faster")
    return figure


def shapes_values() -> Any:
    ordered = [(folder, card, compute) for folder, card in CARDS for compute in PRECISIONS]
    suites = [result(f"{folder}/suite-{compute}.json") for folder, _, compute in ordered]
    ratios = [{tuple(row["shape"]): row["ratio"] for row in suite["rows"]} for suite in suites]
    shapes = sorted(ratios[0], key=lambda mnk: (mnk[0] * mnk[1] * mnk[2], mnk))
    return {
        "columns": [f"{card}\n{compute}" for _, card, compute in ordered],
        "rows": [" x ".join(map(str, shape)) for shape in shapes],
        "ratios": [[round(suite[shape], 2) for suite in ratios] for shape in shapes],
    }


def draw_shapes(values: Any) -> Figure:
    figure, axes = canvas(8.4, 8.2)
    colours = LinearSegmentedColormap.from_list("ratio", [ORANGE, "#ffffff", BLUE])
    table = np.array(values["ratios"])
    axes.imshow(table, cmap=colours, norm=LogNorm(1 / 2.5, 2.5), aspect="auto")
    for (row, column), ratio in np.ndenumerate(table):
        ink = "white" if ratio > 1.75 else "black"  # not INK, which turns light in the dark
        axes.text(column, row, f"{ratio:.2f}", color=ink, ha="center", va="center", size=8.5)
    axes.axvline(len(PRECISIONS) - 0.5, color="white", linewidth=5)
    axes.set_xticks(range(len(values["columns"])), values["columns"])
    axes.set_yticks(range(len(values["rows"])), values["rows"])
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel("cuBLAS's time over ours, hot; below 1 (orange) cuBLAS is faster")
    return figure


def ladder_values() -> Any:
    """The rungs, and the kernels that end each precision."""
    drawn = []
    for rung in load("h100", 4096).rungs:
        numbered = rung.name[0].isdigit()
        label = rung.name if numbered else f"{rung.name}, {rung.compute}"
        kind = rung.compute if numbered else "end"
        drawn.append({"label": label, "kind": kind, "tflops": (rung.gflops or 0) / 1000})
    return drawn


def draw_ladder(rungs: Any) -> Figure:
    figure, axes = canvas(8.4, 5.6)
    places = range(len(rungs))[::-1]
    colours = {"f32": BLUE, "bf16": GREEN, "end": MUTED}
    for place, rung in zip(places, rungs, strict=True):
        axes.barh(place, rung["tflops"], color=colours[rung["kind"]], height=0.72)
        speed = rung["tflops"]
        text = f"{speed:,.0f}" if speed >= 100 else f"{speed:.3g}"
        axes.text(speed * 1.06, place, text, va="center", size=9)
    axes.set_yticks(places, [rung["label"] for rung in rungs])
    axes.set_xscale("log")
    axes.set_xlim(0.3, 1800)
    plain_ticks(axes, [0.5, 1, 5, 10, 50, 100, 500, 1000])
    axes.grid(axis="y", visible=False)
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("TFLOP/s (logarithmic)")
    headline(figure, "4096 x 4096 x 4096 on an H100, from the naive kernel to the tensor cores")
    return figure


CALLS = (
    ("cuLaunchKernel", "cuLaunchKernel (cuda.bindings)"),
    ("kernel.bind(a, b, out)()", "kernel.bind(a, b, out)()"),
    ("kernel(a, b, out)", "kernel(a, b, out)"),
    ("matmul(a, b, out)", "matmul(a, b, out)"),
    ("torch.mm(a, b, out=out)", "torch.mm(a, b, out=out)"),
)


def host_values() -> Any:
    drawn = []
    for name in ("f32-64", "bf16-64x4096x4096"):
        data = result(f"h100/host/{name}.json")
        calls = [{"label": label, **data["us"][call]} for call, label in CALLS]
        drawn.append({"problem": data["problem"], "calls": calls})
    return drawn


def draw_host(problems: Any) -> Figure:
    figure, drawings = panels(8.4, 2.6, 1, 2)
    for axes, problem in zip(drawings, problems, strict=True):
        calls = problem["calls"]
        places = range(len(calls))[::-1]
        for place, call in zip(places, calls, strict=True):
            ours = not call["label"].startswith(("torch", "cu"))
            axes.barh(place, call["median"], color=BLUE if ours else MUTED, height=0.65)
            axes.plot([call["p5"], call["p95"]], [place, place], color=INK, linewidth=1)
            axes.text(call["p95"] + 0.4, place, f"{call['median']:.1f}", va="center", size=9)
        axes.set_yticks(places, [call["label"] for call in calls] if axes is drawings[0] else [])
        axes.set_xlim(0, 22)
        axes.grid(axis="y", visible=False)
        axes.tick_params(axis="y", length=0)
        axes.set_title(problem["problem"].removesuffix(":nn"))
    figure.supxlabel("host us a call, median; line: 5th to 95th percentile", size=10)
    return figure


def looked_up_values() -> Any:
    data = result("h100/lookup/left-out.json")
    rows = [{"problem": row["problem"], "ratio": row["ratio"]} for row in data["rows"]]
    return {"mean": data["geomean"], "rows": sorted(rows, key=lambda row: row["ratio"])}


def draw_looked_up(values: Any) -> Figure:
    figure, axes = canvas(8.4, 3.9)
    rows = values["rows"]
    for place, row in enumerate(rows):
        axes.barh(place, row["ratio"], color=BLUE, height=0.65)
        axes.text(row["ratio"] + 0.005, place, f"{row['ratio']:.2f}", va="center", size=8.5)
    axes.axvline(values["mean"], color=INK, linewidth=1, linestyle="--")
    axes.set_yticks(range(len(rows)), [row["problem"] for row in rows], size=8.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlim(0, 1.15)
    axes.set_xlabel(
        "speed of the looked-up kernel over the tuned one; "
        f"dashed: geometric mean {values['mean']:.3f}"
    )
    headline(figure, "Shapes that nobody tuned, on an H100")
    return figure


RESULTS = (
    Picture(
        "suite",
        "Speed against cuBLAS on 27 shapes in five precisions, on an H100 and on an H200",
        suite_values,
        draw_suite,
    ),
    Picture(
        "ladder",
        "TFLOP/s of each kernel at 4096 cubed on an H100, from naive to wgmma, beside cuBLAS",
        ladder_values,
        draw_ladder,
    ),
    Picture(
        "shapes",
        "Speed against cuBLAS of every shape and precision, as a table in colours",
        shapes_values,
        draw_shapes,
    ),
    Picture(
        "host",
        "Host microseconds of a warm call, beside cuLaunchKernel and torch.mm",
        host_values,
        draw_host,
    ),
    Picture(
        "looked-up",
        "Speed of looked-up kernels over tuned ones on 16 shapes that nobody tuned",
        looked_up_values,
        draw_looked_up,
    ),
)
