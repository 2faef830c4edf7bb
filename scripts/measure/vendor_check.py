"""Verifies cuBLAS, and each algorithm of cuBLASLt's heuristic, on the suite of `check --vendor`.

    python scripts/measure/vendor_check.py --json docs/results/h100/vendor-check.json

It needs a GPU and PyTorch. It prints what is wrong; the file counts the results of each precision
and has every wrong one in the verifier's words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Annotated, Any

import typer
from results import of_this_machine
from rich.console import Console

from autotune.measure.baseline import ALGORITHMS
from autotune.measure.vendor_check import VendorChecks, check_vendor, default_problems
from autotune.problem import Problem
from autotune.report.cache import vendor_json, vendor_table


def main(
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for the results.")] = None,
    shapes: Annotated[list[str] | None, typer.Option(help="Problem instead of the suite.")] = None,
    commit: Annotated[str, typer.Option(help="Commit; by default that of this checkout.")] = "",
) -> None:
    """Prints the wrong results and writes all counts."""
    problems = [Problem.parse(text) for text in shapes or []] or default_problems()
    began = monotonic()
    checks = check_vendor(problems, further=[ALGORITHMS])
    seconds = round(monotonic() - began, 1)
    Console(width=120).print(vendor_table(checks))
    if out:
        content = {
            **of_this_machine(checks.device.name, commit),
            "cublas": checks.library,
            "seconds": seconds,
            "shapes": [*dict.fromkeys(problem.shape for problem in problems)],
            "counts": counts(checks),
            "wrong": wrong(checks),
        }
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(content, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def counts(checks: VendorChecks) -> list[dict[str, object]]:
    """The number of results by precision, library and outcome."""
    kinds = Counter(
        (result.problem.compute, result.runs.partition(" ")[0], result.outcome)
        for result in checks.results
    )
    names = "compute", "library", "result", "count"
    return [dict(zip(names, (*kind, count), strict=True)) for kind, count in kinds.items()]


def wrong(checks: VendorChecks) -> Sequence[Any]:
    """The wrong results, as `autotune check --vendor --json` states them."""
    rows: Any = vendor_json(checks)["checks"]
    return [row for row in rows if row["result"] == "wrong"]


if __name__ == "__main__":
    typer.run(main)
