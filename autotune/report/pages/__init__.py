"""The seam of the HTML pages: analyses of results, drawn by plotly.js in files that work offline.

Only the verbs `report`, `explore` and `occupancy --plot` know it. Plotly and the analyses take long
to import, so each function here imports what it needs.
"""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.device import SmLimits
    from autotune.occupancy import BlockDemand
    from autotune.records import Store
    from autotune.report.pages.overview import Overview
    from autotune.report.pages.record import Analysis
    from autotune.report.selection import Selection


def analysed(selection: Selection, store: Store) -> Analysis | Overview:
    """The data of a page: the analysis of a single record, else the overview of all selected.

    The analysis takes some seconds, mostly for the outlook of the search.
    """
    from autotune.report.pages import overview, record

    if selection.single:
        return record.analysis_of(selection, store)
    return overview.overview_of(selection, store)


def write_page(path: Path, data: Analysis | Overview) -> None:
    """Writes the page of a report.

    Raises:
        MissingError: if plotly is not installed or is too old.
        AutotuneError: if it cannot be written, or something else than a page is there.
    """
    from autotune.report.pages.page import write

    write(path, data.page())


def write_pictures(folder: Path, data: Analysis | Overview) -> list[Path]:
    """Writes each picture of a report into a folder as `<name>.svg`.

    Raises:
        MissingError: if plotly, Kaleido or a browser is missing.
        AutotuneError: if a file cannot be written, or something else than a picture is there.
    """
    from autotune.report.pages.figures import write_svgs

    return write_svgs(data.figures(), folder)


def write_explorer(path: Path, own: SmLimits | None) -> None:
    """Writes the occupancy explorer, which starts with `own`, or else with an H100.

    Raises:
        MissingError: if plotly is not installed or is too old.
        AutotuneError: if it cannot be written, or something else than a page is there.
    """
    from autotune.report.pages.explore import explorer
    from autotune.report.pages.page import write

    write(path, explorer(own))


def write_curves(path: Path, devices: Mapping[str, SmLimits], demand: BlockDemand) -> None:
    """Writes the occupancy curves of a block on each device, by its label, as an SVG file.

    Raises:
        UsageError: if the name does not end in `.svg`.
        MissingError: if plotly, Kaleido or a browser is missing.
        AutotuneError: if it cannot be written, or something else than a picture is there.
    """
    from autotune.report.pages.figures import write_svgs
    from autotune.report.pages.occupancy import combined_figure, curve_figures

    if path.suffix != ".svg":
        raise UsageError(f"--plot is {str(path)!r}; give a file that ends in .svg")
    write_svgs({path.stem: combined_figure(curve_figures(devices, demand))}, path.parent)


def open_page(path: Path) -> None:
    """Opens a page in the user's browser; without one, says so on standard error."""
    if not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser here; open {path.resolve()}", file=sys.stderr)
