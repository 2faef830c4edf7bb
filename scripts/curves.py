"""Runs of searches on a recorded space, their means over seeds, and a table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from autotune.report import cell

AFTER = (20, 50, 100, 200)
REACHED = (0.95, 0.98)
# A choice is right if it takes at most this times as long as the best configuration tried.
RIGHT = 1.005


@dataclass(frozen=True)
class Run:
    """The results of a run, as shares of the optimum.

    Attributes:
        method: the searching method.
        tried: share of each evaluated configuration; 0 for a failure.
        chosen: share of the choice after each evaluation.
        ask_ms: mean milliseconds to propose a configuration and to take in its outcome.
    """

    method: str
    tried: tuple[float, ...]
    chosen: tuple[float, ...]
    ask_ms: float

    def after(self, evaluations: int) -> float:
        """The choice after that many evaluations; a search that had ended keeps its last."""
        return self.chosen[min(evaluations, len(self.chosen)) - 1]

    def until(self, share: float) -> float:
        """Evaluations until one reached the share; infinite if none did."""
        return next(
            (count for count, reached in enumerate(self.tried, 1) if reached >= share), math.inf
        )

    @property
    def right(self) -> bool:
        """Whether the last choice is as good as any tried, so that noise did not pick it."""
        return self.chosen[-1] * RIGHT >= max(self.tried)


def row(method: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The statistics of a method's runs; None where a share was not reached."""
    until = {share: sorted(run.until(share) for run in runs) for share in REACHED}
    longest = max(len(run.chosen) for run in runs)
    curve = [statistics.fmean(run.after(count) for run in runs) for count in range(1, longest + 1)]
    return {
        "method": method,
        "runs": len(runs),
        "after": {str(count): curve[count - 1] for count in AFTER if count <= longest},
        "until": {
            f"{share:.0%}": {
                "median": quantile(counts, 0.5),
                "p90": quantile(counts, 0.9),
                "runs": sum(count < math.inf for count in counts),
            }
            for share, counts in until.items()
        },
        "right": statistics.fmean(run.right for run in runs),
        "ask_ms": statistics.fmean(run.ask_ms for run in runs),
        "curve": [round(share, 5) for share in curve],
    }


def quantile(counts: Sequence[float], share: float) -> int | None:
    """The smallest sorted count that `share` of them do not exceed; None if it is infinite."""
    count = counts[math.ceil(share * len(counts)) - 1]
    return None if count == math.inf else int(count)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows as a table of 120 columns: mean shares of the optimum, counts of evaluations."""
    shown = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    shown.add_column("method", no_wrap=True)
    shares = [f"{share:.0%}" for share in REACHED]
    for header in (
        *(f"after\n{count}" for count in AFTER),
        *(f"until\n{share}" for share in shares),
        f"p90 to\n{shares[0]}",
        *(f"runs at\n{share}" for share in shares),
        "chose\nright",
        "ms an\nask",
    ):
        shown.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        reached = [row["until"][share] for share in shares]
        beyond = f">{len(row['curve'])}"
        shown.add_row(
            row["method"],
            *(cell(row["after"].get(str(count)), "{:.1%}") for count in AFTER),
            *(cell(counts["median"], "{}") or beyond for counts in reached),
            cell(reached[0]["p90"], "{}") or beyond,
            *(f"{counts['runs']}/{row['runs']}" for counts in reached),
            f"{row['right']:.0%}",
            f"{row['ask_ms']:.2f}",
        )
    return shown
