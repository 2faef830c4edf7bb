"""Pieces of HTML that the report's pages share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from autotune.report.figures.base import Figure
from autotune.report.page import escape

Kind = Literal["number", "word", "prose"]
"""How a column of a table is set: numbers to the right, words without breaks, prose with them."""

SHARED = 40
"""Texts of a trace from which they are kept once for all traces."""


def plot(name: str, description: str, caption: str, size: str = "") -> str:
    """The place of a figure with its caption; the description is for screen readers."""
    return (
        f'<figure><div class="plot {size}" id="{name}" data-figure="{name}" role="group" '
        f'aria-label="{escape(description)}"></div>'
        f"<figcaption>{caption}</figcaption></figure>"
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


def commands(lines: Sequence[str]) -> str:
    """Command lines to copy."""
    return f"<pre><code>{escape(chr(10).join(lines))}</code></pre>"


def breakable(text: object) -> str:
    """Plain text that may break behind its commas, as configurations have no blanks."""
    return escape(text).replace(",", ",<wbr>")


def table(
    headings: Sequence[tuple[str, Kind]], rows: Iterable[Sequence[object]], caption: str
) -> str:
    """A table that neither sorts nor filters, of plain texts."""
    head = "".join(f'<th scope="col" class="{kind}">{escape(name)}</th>' for name, kind in headings)
    body = "".join(
        "<tr>"
        + "".join(
            f'<td class="{kind}">{breakable(value) if kind == "prose" else escape(value)}</td>'
            for value, (_, kind) in zip(row, headings, strict=True)
        )
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


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
