"""The skeleton of a page: one HTML file with its styles, scripts and data inlined.

A page loads and sends nothing, which its Content-Security-Policy enforces; no button uploads a
picture. Text goes through `escape`, data
through `document`, which encodes it so that no string can end the script element that holds it.
"""

from __future__ import annotations

import html
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

from autotune.errors import MissingError
from autotune.files import output

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
) -> str:
    """The text of a page.

    Args:
        title: of the window and the first heading, as plain text.
        sections: in their order.
        head: HTML between the first heading and the sections.
        data: JSON values for scripts, which read them by `page.data(name)`.
        script: JavaScript of this page, run after plotly.js and `page.js`.
        footer: HTML.

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
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>' if len(sections) > 2 else ""
    return (
        f'{_START}<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{asset('page.css')}</style>\n</head>\n<body>\n"
        '<a class="skip" href="#main">Skip to the content</a>\n'
        f"<header><h1>{escape(title)}</h1>{head}</header>\n{contents}\n"
        f'<main id="main">\n{bodies}</main>\n<footer>{footer}</footer>\n{values}'
        f"<script>{plotly_js()}</script>\n<script>{asset('page.js')}</script>\n"
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


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
    return (resources.files("autotune.report.page") / name).read_text(encoding="utf-8")


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
    if _version(version) < OLDEST_PLOTLY:
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


def _version(text: str) -> tuple[int, ...]:
    """The numbers at the start of a version, such as (7, 1, 0) of `7.1.0rc1`."""
    numbers: list[int] = []
    for part in text.split(".")[:3]:
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        numbers.append(int(digits or 0))
    return tuple(numbers)
