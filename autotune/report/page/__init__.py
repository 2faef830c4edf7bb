"""HTML pages that work offline: the skeleton, the theme and the number formats."""

from __future__ import annotations

from autotune.report.page.html import Section, document, escape, plotly_js, write
from autotune.report.page.numbers import count, percent, quantity, ratio, time_us

__all__ = [
    "Section",
    "count",
    "document",
    "escape",
    "percent",
    "plotly_js",
    "quantity",
    "ratio",
    "time_us",
    "write",
]
