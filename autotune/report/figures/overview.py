"""The pictures of several problems: against the vendor's library, and over M."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.report.analysis.overview import OverviewRow, SizeCurve
from autotune.report.figures.base import COLOURS, VENDOR, Figure, axis, figure, text

ROW, NARROW, MANY = (20, 12), (15, 10), 60
"""Pixels of a problem and of its letters; those where there are many; how many are many."""


def ratio_figure(rows: Sequence[OverviewRow]) -> Figure:
    """The vendor's time over ours, hot and cold, the largest ratio on top; at 1 both tie."""
    timed = sorted(
        (row for row in rows if row.over_hot is not None), key=lambda row: row.over_hot or 0.0
    )
    devices = {row.device for row in timed}
    labels = [
        text(row.title if len(devices) == 1 else f"{row.title} on {row.device}") for row in timed
    ]
    ratios = {"hot": [row.over_hot for row in timed], "cold": [row.over_cold for row in timed]}
    data = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": ratios[name],
            "y": labels,
            "marker": {"size": 9, "color": COLOURS[number], "symbol": symbol},
            "hovertemplate": f"%{{y}}: %{{x:.2f}}x, {name}<extra></extra>",
        }
        for number, (name, symbol) in enumerate((("hot", "circle"), ("cold", "diamond-open")))
    ]
    x = axis("vendor's time over ours", log=True)
    y = {"type": "category", "categoryarray": labels, "dtick": 1, "range": [-1, len(labels)]}
    result = figure(data, x | {"side": "top"}, y)
    result["layout"]["legend"] |= {"y": 1, "yanchor": "top", "yref": "container"}
    result["layout"]["margin"] |= {"t": 70, "b": 10}
    result["layout"]["shapes"] = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            **{"x0": 1, "x1": 1, "y0": 0, "y1": 1},
            "line": {"color": VENDOR, "dash": "dash"},
        }
    ]
    row, letters = ROW if len(timed) <= MANY else NARROW
    result["layout"]["height"] = 130 + row * len(timed)
    result["layout"]["yaxis"]["tickfont"] = {"size": letters}
    return result


def size_figure(curve: SizeCurve) -> Figure:
    """The speed over M, ours and the vendor's."""
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": name,
            "x": list(curve.sizes),
            "y": list(values),
            "line": {"color": colour, "dash": dash},
            "hovertemplate": "M=%{x}: %{y:.4g} TFLOP/s<extra></extra>",
        }
        for name, values, colour, dash in (
            ("autotune", curve.tflops, COLOURS[0], "solid"),
            ("cuBLAS", curve.vendor_tflops, VENDOR, "dash"),
        )
    ]
    return figure(data, axis("M", log=True), axis("TFLOP/s", log=True))
