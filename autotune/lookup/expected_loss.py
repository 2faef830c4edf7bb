"""The loss against full tuning that an answer had on average.

The figures were measured on shapes left out one by one (`scripts/left_out.py`) and are kept in
`data/expected_loss.json`, with their source.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from functools import cache
from importlib import resources
from typing import Literal


def expected_loss(how: Literal["near", "model"], deviation: float) -> float:
    """Expected loss against full tuning, 0.03 for 3 %.

    Args:
        how: `near`, where neighbours corrected the cost model; `model`, where it stands alone.
        deviation: standard deviation of the log of the predicted time.
    """
    bounds, losses = _table()[how]
    return losses[bisect_right(bounds, deviation)]


@cache
def _table() -> dict[str, tuple[list[float], list[float]]]:
    """Ascending deviations for each kind, and the losses below, between and above them."""
    data = resources.files("autotune") / "data" / "expected_loss.json"
    rows = json.loads(data.read_text(encoding="utf-8"))["losses"]
    return {how: (row["doubts"], row["losses"]) for how, row in rows.items()}
