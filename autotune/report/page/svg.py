"""Figures as SVG files, drawn by Kaleido in Chrome or Chromium."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from autotune.errors import AutotuneError, MissingError
from autotune.report.page.html import INSTALL, plotly_js

WIDTH, HEIGHT = 900, 520
"""Of a picture in pixels; a figure may state another height."""

_LINES = {"gridcolor": "#d9dee5", "linecolor": "#5a6675", "zerolinecolor": "#d9dee5"}
_BROWSER = (
    "--svg draws with Chrome or Chromium, and {why}; install one (`apt-get install chromium` or "
    "`plotly_get_chrome`), or save SVG files from the page with the camera over each picture"
)


def write_svgs(figures: Mapping[str, dict[str, Any]], folder: Path) -> list[Path]:
    """Writes each figure as `<name>.svg` into a folder, which is created if needed.

    Raises:
        MissingError: if plotly, Kaleido or a browser is missing.
        AutotuneError: if a file cannot be written.
    """
    plotly_js()  # says what is wrong with plotly
    if find_spec("kaleido") is None:
        raise MissingError(f"--svg needs kaleido, which is not installed: {INSTALL}")
    from plotly import io

    paths = [folder / f"{name}.svg" for name in figures]
    if not paths:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):  # drawing takes seconds, and Kaleido ignores some failures
            pass
        io.write_images(
            [_printed(figure) for figure in figures.values()],
            [str(path) for path in paths],
            format="svg",
            width=WIDTH,
            height=[figure["layout"].get("height", HEIGHT) for figure in figures.values()],
        )
    except OSError as error:
        reason = error.strerror or error
        raise AutotuneError(f"cannot write to {folder}: {reason}; give another folder") from error
    except Exception as error:  # Kaleido, its browser and plotly each have their own
        why = " ".join(str(error).split()).rstrip(".") or type(error).__name__
        raise MissingError(_BROWSER.format(why=f"that failed ({why[:200]})")) from error
    # Kaleido is silent about some folders that take no files.
    if missing := [path for path in paths if not path.is_file()]:
        raise AutotuneError(f"cannot write {missing[0]}; give another folder")
    return paths


def _printed(figure: dict[str, Any]) -> dict[str, Any]:
    """The figure in the colours of a light page."""
    layout = dict(figure["layout"])
    for name in layout:
        if name.startswith(("xaxis", "yaxis")):
            layout[name] = {**layout[name], **_LINES}
    colours = {"paper_bgcolor": "#ffffff", "plot_bgcolor": "#ffffff"}
    return {"data": figure["data"], "layout": {**layout, **colours}}
