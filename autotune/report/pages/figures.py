"""Parts of all figures: colours, axes, and text that plotly.js does not read as markup."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

Figure = dict[str, Any]
"""A figure of plotly.js: `data` and `layout`."""

# Readable on light and dark pages, and to colour-blind readers (after Okabe and Ito).
COLOURS = ("#3b82c4", "#d98324", "#2a9d78", "#b565a7", "#8a7d1f", "#7a8794")
SYMBOLS = ("circle", "square", "triangle-up", "diamond", "cross", "pentagon")
FAILED = ("x", "asterisk-open", "hash-open", "y-up-open", "hourglass", "bowtie")
"""Symbols that go with the colours, so that no difference is one of colour alone."""

WINNER, VENDOR, BOUND = "#d62f5c", "#7a8794", "#8a7d1f"
SCALE = "Viridis"


def figure(data: Sequence[dict[str, Any]], x: dict[str, Any], y: dict[str, Any]) -> Figure:
    """A figure with one pair of axes; the legend is above it."""
    return {
        "data": list(data),
        "layout": {
            "margin": {"l": 62, "r": 14, "t": 12, "b": 48},
            "font": {"size": 12},
            "legend": {
                "orientation": "h",
                "x": 0,
                "y": 1.02,
                "xanchor": "left",
                "yanchor": "bottom",
            },
            "hovermode": "closest",
            "xaxis": {"automargin": True, **x},
            "yaxis": {"automargin": True, **y},
        },
    }


def scatter(
    name: str,
    x: Iterable[Any],
    y: Iterable[Any],
    hover: str,
    *,
    mode: str = "markers",
    **settings: Any,
) -> dict[str, Any]:
    """A trace of points or lines; `hover` is plotly.js's template of their labels."""
    trace = {"type": "scatter", "mode": mode, "name": text(name), "x": [*x], "y": [*y]}
    return {**trace, "hovertemplate": hover, **settings}


def vendor_line(name: str, x: Iterable[Any], y: Iterable[Any], axis: str) -> dict[str, Any]:
    """The time of the vendor's library as a line; `axis` is the one that shows times."""
    hover = f"{text(name)}: %{{{axis}:.4g}} µs<extra></extra>"
    return scatter(name, x, y, hover, mode="lines", line={"color": VENDOR, "dash": "dash"})


def axis(title: str, *, log: bool = False) -> dict[str, Any]:
    """An axis with a title."""
    numbers = {"exponentformat": "none", "separatethousands": True}
    scale: dict[str, Any] = {"type": "log"} if log else {}
    return {"title": {"text": text(title), "standoff": 8}, **numbers, **scale}


def text(words: object) -> str:
    """Text that plotly.js shows as it is: it reads a few HTML tags and entities."""
    return html.escape(str(words), quote=False)


def config_text(config: str) -> str:
    """A configuration for a hover label, in lines of about 44 characters."""
    family, _, pairs = config.partition(":")
    words = f"{family}: {pairs.replace(',', ' ')}"
    lines = textwrap.wrap(words, 44, break_long_words=False, break_on_hyphens=False)
    return "<br>".join(map(text, lines))
