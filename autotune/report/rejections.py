"""Rejected configurations, counted by reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotune.report.tables import FittedTable


def render(rejected: Mapping[str, int], failed: Mapping[str, int]) -> FittedTable:
    """A row for each reason, the most frequent first.

    Args:
        rejected: before compilation, by the rule broken.
        failed: from compilation on, by the stage that failed.
    """
    from autotune.report.tables import FittedTable

    table = FittedTable(title="rejected configurations", title_justify="left")
    table.add("reason", "text")
    table.add("configurations")
    for title, counts in (("before compilation", rejected), ("after that", failed)):
        table.add_row(title, f"{sum(counts.values()):,}", style="bold")
        for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
            table.add_row(f"  {reason}", f"{count:,}")
    return table
