"""How all pictures look: sizes, colours and the parts that they share."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's colours, which readers with colour blindness tell apart.
BLUE, ORANGE, GREEN, RED, PURPLE, SKY = (
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#d55e00",
    "#cc79a7",
    "#56b4e9",
)
INK, MUTED, GRID = "#1f2328", "#6b7280", "#e5e7eb"

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
    "figure.facecolor": "white",
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
