"""The seam of the HTML pages: analyses of results and the explorer, in files that work offline.

Only the verbs `report` and `explore` know it. Plotly and the analyses take long
to import, so each function here imports what it needs.
"""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.device import SmLimits
    from autotune.records import Store
    from autotune.report.pages.overview import Overview
    from autotune.report.pages.record import Analysis
    from autotune.report.selection import Selection


def analysed(selection: Selection, store: Store) -> Analysis | Overview:
    """The data of a page: the analysis of a single record, else the overview of all selected."""
    from autotune.report.pages import overview, record

    if selection.single:
        return record.analysis_of(selection, store)
    return overview.overview_of(selection)


def write_page(path: Path, data: Analysis | Overview) -> None:
    """Writes the page of a report.

    Raises:
        MissingError: if plotly is not installed or is too old.
        AutotuneError: if it cannot be written, or something else than a page is there.
    """
    from autotune.report.pages.page import write

    write(path, data.page())


def write_explorer(path: Path, own: SmLimits | None) -> None:
    """Writes the occupancy explorer, which starts with `own`, or else with an H100.

    Raises:
        AutotuneError: if it cannot be written, or something else than a page is there.
        DeviceError: if the occupancy rules of `own` are unknown.
    """
    from autotune.report.pages.explore import explorer
    from autotune.report.pages.page import write

    write(path, explorer(own))


def open_page(path: Path) -> None:
    """Opens a page in the user's browser; without one, says so on standard error."""
    if not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser here; open {path.resolve()}", file=sys.stderr)
