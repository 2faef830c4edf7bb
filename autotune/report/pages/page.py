"""The skeleton of a page: one HTML file with its styles, scripts and data inlined.

A page loads and sends nothing, which its Content-Security-Policy enforces; no button uploads a
picture. Text goes through `escape`, data through `document`, which encodes it so that no string can
end the script element that holds it.
"""

from __future__ import annotations

import html
import json
import math
import re
import sys
import webbrowser
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

from autotune.errors import MissingError
from autotune.files import output
from autotune.report.pages.figures import Figure
from autotune.version import __version__

OLDEST_PLOTLY = (6, 1, 1)
"""The first version of plotly whose plotly.js and SVG export the pages were tried with."""

INSTALL = "pip install 'tile-autotune[report]'"

_START = (
    '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta name="generator" content="autotune">\n'
    '<meta charset="utf-8">\n'
)
PAGE = output.OutputKind("page", (_START.encode(),))

# Plotly.js draws into canvases and offers pictures as data and blob addresses.
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data: blob:; font-src data:; form-action 'none'; base-uri 'none'"
)


@dataclass(frozen=True)
class Section:
    """A part of a page with a heading, which the page's navigation links to.

    Attributes:
        key: the anchor: lower-case letters, digits and dashes.
        title: the heading, as plain text.
        content: HTML.
    """

    key: str
    title: str
    content: str


def document(
    title: str,
    sections: Sequence[Section],
    *,
    head: str = "",
    data: Mapping[str, object] | None = None,
    script: str = "",
    footer: str = "",
    style: str = "",
    plots: bool = True,
) -> str:
    """The text of a page.

    Args:
        title: title of the window and the first heading, as plain text.
        sections: sections in their order.
        head: HTML between the first heading and the sections.
        data: JSON values for scripts, which read them by `page.data(name)`.
        script: JavaScript of this page, run after plotly.js and `page.js`.
        footer: HTML.
        style: CSS of this page.
        plots: whether plotly.js draws its figures.

    Raises:
        MissingError: if plotly is not installed or is too old.
    """
    links = "".join(f'<li><a href="#{part.key}">{escape(part.title)}</a></li>' for part in sections)
    bodies = "".join(
        f'<section id="{part.key}" aria-labelledby="{part.key}-title">'
        f'<h2 id="{part.key}-title">{escape(part.title)}</h2>{part.content}</section>\n'
        for part in sections
    )
    values = "".join(
        f'<script type="application/json" id="data-{name}">{encoded(value)}</script>\n'
        for name, value in (data or {}).items()
    )
    scripts = f"<script>{plotly_js()}</script>\n" if plots else ""
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(sections) > 2 else ""
    return (
        f'{_START}<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{asset('page.css')}{style}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the content</a>\n'
        f"<header><h1>{escape(title)}</h1>{head}</header>\n{contents}\n"
        f'<main id="main">\n{bodies}</main>\n<footer>{footer}</footer>\n{values}'
        f"{scripts}<script>{asset('page.js')}</script>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def pictures_page(
    title: str,
    sections: Sequence[Section],
    *,
    head: str,
    figures: Mapping[str, Figure],
    tables: Mapping[str, object],
    remark: str = "",
) -> str:
    """The text of a page whose sections have places for figures and for tables to sort.

    Args:
        title: title of the window and the first heading, as plain text.
        sections: in their order; `plot(name, ...)` is the place of a figure, an element with the id
            `table-NAME` that of a table.
        head: HTML between the first heading and the sections.
        figures: of plotly.js, by name.
        tables: as `page.table` of `page.js` takes them, by name.
        remark: plain text for the footer.

    Raises:
        MissingError: if plotly is not installed or is too old.
    """
    data = {"figures": figures, "tables": tables}
    sections = (*sections, Section("words", "Words on this page", asset("words.html")))
    notes = (f"Made by autotune {__version__}.", remark, "This file loads nothing from elsewhere.")
    footer = escape(" ".join(filter(None, notes)))
    script = asset("report.js")
    return document(title, sections, head=head, data=data, script=script, footer=footer)


def escape(text: object) -> str:
    """Text for HTML content and quoted attributes."""
    return html.escape(str(text), quote=True)


def encoded(value: object) -> str:
    """A JSON value for a script element: no string in it can end the element.

    Raises:
        ValueError: for a number that is not finite.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    # `</script>` and `<!--` change how HTML reads a script element.
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def asset(name: str) -> str:
    """The text of a file beside this module."""
    return (resources.files("autotune.report.pages") / name).read_text(encoding="utf-8")


@cache
def plotly_js() -> str:
    """The text of plotly.js, from the installed plotly.

    Raises:
        MissingError: if plotly is not installed, broken or too old.
    """
    try:
        import plotly
        from plotly.offline import get_plotlyjs

        version = str(plotly.__version__)
    except Exception as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" ({error})"
        raise MissingError(
            f"pages need plotly, which is not installed{reason}: {INSTALL}"
        ) from None
    numbers = tuple(map(int, re.findall(r"\d+", version)[:3]))
    if numbers < OLDEST_PLOTLY:
        oldest = ".".join(map(str, OLDEST_PLOTLY))
        raise MissingError(
            f"plotly {version} is installed; pages need {oldest} or newer: {INSTALL}"
        )
    return str(get_plotlyjs()).replace("</script", "<\\/script")


def write(path: Path, text: str) -> None:
    """Writes a page whole.

    Raises:
        AutotuneError: if it cannot be written, or something else than a page is there.
    """
    output.write(path, text.encode("utf-8"), PAGE)


def open_page(path: Path) -> None:
    """Opens a page in the user's browser; without one, says so on standard error."""
    if not webbrowser.open(path.resolve().as_uri()):
        print(f"no browser here; open {path.resolve()}", file=sys.stderr)


def time_us(microseconds: float | None) -> str:
    """A time to four digits, in ns, µs, ms or s; a dash if there is none."""
    if microseconds is None or not math.isfinite(microseconds):
        return "–"
    if microseconds == 0:
        return "0 µs"
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "µs")):
        if abs(microseconds) >= size:
            return f"{_digits(microseconds / size)} {unit}"
    return f"{_digits(microseconds * 1e3)} ns"


def percent(share: float | None, digits: int = 1) -> str:
    """A share (0..1) in percent; a dash if there is none."""
    return "–" if share is None or not math.isfinite(share) else f"{share:.{digits}%}"


def ratio(value: float | None) -> str:
    """A ratio such as `1.26x`; a dash if there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.2f}x"


def count(value: float) -> str:
    """A whole number with thousands separated, such as `12,345`."""
    return f"{value:,.0f}"


def _digits(value: float) -> str:
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    return f"{value:,.{max(0, 4 - whole)}f}"


Kind = Literal["number", "word", "prose"]
"""The setting of a table's column: numbers to the right, words without breaks, prose with them."""


def plot(name: str, description: str, caption: str, size: str = "") -> str:
    """The place of a figure with its caption; the description is for screen readers."""
    return (
        f'<figure><div class="plot {size}" id="{name}" data-figure="{name}" role="group" '
        f'aria-label="{escape(description)}"></div>'
        + (f"<figcaption>{caption}</figcaption></figure>" if caption else "</figure>")
    )


def facts(items: Iterable[tuple[str, str, str]]) -> str:
    """Figures of a headline: label, value and a remark, as plain texts."""
    cells = (
        f"<div><dt>{escape(label)}</dt><dd>{escape(value)}<small>{escape(remark)}</small></dd></div>"
        for label, value, remark in items
    )
    return f'<dl class="facts">{"".join(cells)}</dl>'


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph of plain text; `kind` is a class of the style sheet."""
    return f'<p class="{kind}">{escape(text)}</p>' if kind else f"<p>{escape(text)}</p>"


def breakable(text: object) -> str:
    """Plain text that may break behind its commas, as configurations have no blanks."""
    return escape(text).replace(",", ",<wbr>")


def table(headings: Mapping[str, Kind], rows: Iterable[Sequence[object]], caption: str) -> str:
    """A table of plain texts that neither sorts nor filters."""
    head = "".join(
        f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in headings.items()
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{breakable(value) if kind == "prose" else escape(value)}</td>'
            for value, kind in zip(row, headings.values(), strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )
