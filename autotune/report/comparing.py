"""Fingerprints, and times beside those of a bundle, as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.lookup.fingerprints import Fingerprint
from autotune.report.formatting import cell
from autotune.report.tables import FittedTable
from autotune.retiming import TimeCheck

SHORT = 16
"""Digits of a hash in a table."""


def fingerprint_table(ours: Fingerprint) -> RenderableType:
    """The hash of each shape, and that of all."""
    table = FittedTable()
    table.add("shape", "text")
    table.add("hash", "text")
    for problem, digest in ours.shapes.items():
        table.add_row(str(problem), digest[:SHORT] if digest else "nothing would run")
    return Group(table, Text(ours.digest))


def fingerprint_json(ours: Fingerprint) -> dict[str, object]:
    """The same as JSON data, with the hashes of tuned ranges."""
    shapes = {str(problem): digest for problem, digest in ours.shapes.items()}
    return {"fingerprint": ours.digest, "shapes": shapes, "ranges": dict(ours.ranges)}


def checks_table(checks: Sequence[TimeCheck], least: float) -> RenderableType:
    """A line for each problem, and how many are too slow."""
    table = FittedTable()
    table.add("shape", "text")
    for header in ("bundle us", "now us", "ratio"):
        table.add(header)
    table.add("evidence", "text")
    table.add("", "prose", worth=-1.5)
    for check in checks:
        slow = f"below {least:g}" if check.ratio < least else ""
        table.add_row(
            str(check.problem),
            f"{check.bundle_us:.2f}",
            cell(check.now_us, "{:.2f}"),
            f"{check.ratio:.3f}",
            check.evidence,
            check.why or slow,
        )
    count = sum(check.ratio < least for check in checks)
    return Group(table, Text(f"{count} of {len(checks)} below {least:g}"))


def checks_json(checks: Sequence[TimeCheck], least: float) -> dict[str, object]:
    """The same as JSON data."""
    rows = [
        {
            "shape": str(check.problem),
            "bundle_us": check.bundle_us,
            "now_us": check.now_us,
            "ratio": check.ratio,
            "evidence": check.evidence,
            "runs": check.runs,
            "why": check.why,
        }
        for check in checks
    ]
    return {"min": least, "passed": all(check.ratio >= least for check in checks), "checks": rows}
