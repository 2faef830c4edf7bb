"""Parts of all figures: colours, axes, and text that plotly.js does not read as markup."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune import files
from autotune.errors import AutotuneError, MissingError
from autotune.files import output
from autotune.report.pages.page import INSTALL, plotly_js

Figure = dict[str, Any]
"""A figure of plotly.js: `data` and `layout`."""

# Readable on light and dark pages, and to colour-blind readers (after Okabe and Ito).
COLOURS = ("#3b82c4", "#d98324", "#2a9d78", "#b565a7", "#8a7d1f", "#7a8794")
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


def colour_bar(title: str, tick_format: str = "") -> dict[str, Any]:
    """The scale of a colour; its title runs along it, to leave the picture its width."""
    return {"title": {"text": title, "side": "right"}, "tickformat": tick_format, "thickness": 12}


def text(words: object) -> str:
    """Text that plotly.js shows as it is: it reads a few HTML tags and entities."""
    return html.escape(str(words), quote=False)


def texts(words: Sequence[object]) -> list[str]:
    """`text` of each."""
    return [text(word) for word in words]


def config_text(config: str, width: int = 44) -> str:
    """A configuration for a hover label, in lines of about `width` characters."""
    family, _, pairs = config.partition(":")
    lines = [f"{family}:"]
    for pair in filter(None, pairs.split(",")):
        if len(lines[-1]) + len(pair) > width:
            lines.append("")
        lines[-1] += f" {pair}"
    return "<br>".join(text(line.strip()) for line in lines)


SHARED = 40
"""Texts of a trace from which they are kept once for all traces."""

WIDTH, HEIGHT = 900, 520
"""Of a picture in pixels; a figure may state another height."""

_SVG = output.OutputKind("picture", (b'<svg data-generator="autotune" ',))
_LINES = {"gridcolor": "#d9dee5", "linecolor": "#5a6675", "zerolinecolor": "#d9dee5"}
_BROWSER = (
    "--svg draws with Chrome or Chromium, and {why}; install one (`apt-get install chromium` or "
    "`plotly_get_chrome`), or save SVG files from the page with the camera over each picture"
)


def write_svgs(figures: Mapping[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Writes each figure as `<name>.svg` into a folder, which is created if needed.

    Raises:
        MissingError: if plotly, Kaleido or a browser is missing.
        AutotuneError: if a file cannot be written, or something else than a picture is there.
    """
    plotly_js()  # says what is wrong with plotly
    if find_spec("kaleido") is None:
        raise MissingError(f"--svg needs kaleido, which is not installed: {INSTALL}")
    if not figures:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = error.strerror or error
        raise AutotuneError(f"cannot write to {folder}: {reason}; give another folder") from error
    paths = [folder / f"{name}.svg" for name in figures]
    for path, picture in zip(paths, _pictures([*figures.values()]), strict=True):
        output.write(path, picture.replace(b"<svg ", _SVG.starts[0], 1), _SVG)
    return paths


def _pictures(figures: Sequence[dict[str, Any]]) -> list[bytes]:
    """The figures as SVG; one browser draws all of them."""
    with files.temporary_folder() as scratch:
        drawn = [scratch / f"{number}.svg" for number in range(len(figures))]
        try:
            import kaleido  # noqa: F401 - if it fails, plotly prints a traceback
            from plotly import io

            io.write_images(
                [_printed(figure) for figure in figures],
                [str(path) for path in drawn],
                format="svg",
                width=WIDTH,
                height=[figure["layout"].get("height", HEIGHT) for figure in figures],
            )
            return [path.read_bytes() for path in drawn]
        except Exception as error:  # Kaleido, its browser and plotly each have their own
            why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
            raise MissingError(_BROWSER.format(why=f"that failed ({why[:200]})")) from error


def _printed(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure in the colours of a light page."""
    layout = dict(figure["layout"])
    for name in layout:
        if name.startswith(("xaxis", "yaxis")):
            layout[name] = {**layout[name], **_LINES}
    colours = {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}
    return {"data": figure["data"], "layout": {**layout, **colours}}


def shared_labels(figures: Mapping[str, Figure]) -> tuple[dict[str, Figure], list[str]]:
    """The figures with long lists of texts replaced by `{"labels": numbers}`, and the texts.

    The hover label of a trial is the same in several pictures.
    """
    numbers: dict[str, int] = {}

    def compact(trace: dict[str, object]) -> dict[str, object]:
        texts = trace.get("text")
        if not isinstance(texts, list) or len(texts) < SHARED or trace["type"] != "scatter":
            return trace
        return trace | {"text": {"labels": [numbers.setdefault(t, len(numbers)) for t in texts]}}

    compacted = {
        name: figure | {"data": [compact(trace) for trace in figure["data"]]}
        for name, figure in figures.items()
    }
    return compacted, list(numbers)
