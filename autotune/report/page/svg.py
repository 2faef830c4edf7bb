"""Figures as SVG files, drawn by Kaleido in Chrome or Chromium."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from autotune import files
from autotune.errors import AutotuneError, MissingError
from autotune.files import output
from autotune.report.page.html import INSTALL, plotly_js

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
