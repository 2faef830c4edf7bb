"""How soon searches found what: runs on a recorded space, their means, and a table."""

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
# A choice is right if it is at most so much slower than the best of those that were tried.
RIGHT = 1.005


@dataclass(frozen=True)
class Run:
    """What a run found, as shares of the optimum.

    Attributes:
        method: what chose.
        tried: what each evaluation tried, in order; 0 for what failed.
        chosen: what would be chosen after each of them.
        ask_ms: what a choice took on average, telling included.
    """

    method: str
    tried: tuple[float, ...]
    chosen: tuple[float, ...]
    ask_ms: float

    def after(self, evaluations: int) -> float:
        """What is chosen after so many; a search that had come to its end keeps its choice."""
        return self.chosen[min(evaluations, len(self.chosen)) - 1]

    def until(self, share: float) -> float:
        """Evaluations until one was that good; infinite if none was."""
        return next((place for place, one in enumerate(self.tried, 1) if one >= share), math.inf)

    @property
    def right(self) -> bool:
        """Whether noise did not pick: the last choice is as good as any that was tried."""
        return self.chosen[-1] * RIGHT >= max(self.tried)


def row(method: str, runs: Sequence[Run]) -> dict[str, Any]:
    """The runs of a method in numbers; None where a share was not reached."""
    until = {share: sorted(one.until(share) for one in runs) for share in REACHED}
    longest = max(len(one.chosen) for one in runs)
    curve = [statistics.fmean(one.after(count) for one in runs) for count in range(1, longest + 1)]
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
        "right": statistics.fmean(one.right for one in runs),
        "ask_ms": statistics.fmean(one.ask_ms for one in runs),
        "curve": [round(share, 5) for share in curve],
    }


def quantile(counts: Sequence[float], share: float) -> int | None:
    """The smallest of sorted counts that so many are no larger than; None if it is infinite."""
    found = counts[math.ceil(share * len(counts)) - 1]
    return None if found == math.inf else int(found)


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """The rows in 120 columns. Shares of the optimum are means, counts are of evaluations."""
    drawn = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    drawn.add_column("method", no_wrap=True)
    shares = [f"{share:.0%}" for share in REACHED]
    for header in (
        *(f"after\n{count}" for count in AFTER),
        *(f"until\n{share}" for share in shares),
        f"p90 to\n{shares[0]}",
        *(f"runs at\n{share}" for share in shares),
        "chose\nright",
        "ms an\nask",
    ):
        drawn.add_column(header, justify="right", no_wrap=True)
    for one in rows:
        reached = [one["until"][share] for share in shares]
        beyond = f">{len(one['curve'])}"
        drawn.add_row(
            one["method"],
            *(cell(one["after"].get(str(count)), "{:.1%}") for count in AFTER),
            *(cell(each["median"], "{}") or beyond for each in reached),
            cell(reached[0]["p90"], "{}") or beyond,
            *(f"{each['runs']}/{one['runs']}" for each in reached),
            f"{one['right']:.0%}",
            f"{one['ask_ms']:.2f}",
        )
    return drawn
