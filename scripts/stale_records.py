"""Counts the shipped records that are stale, by card.

    python scripts/stale_records.py             as `make check` does
    python scripts/stale_records.py --refuse    as `make wheel` does: status 1 if a record is stale

needs no GPU and no compiler.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import Annotated

import typer

from autotune.measure import targets
from autotune.records import shipped
from autotune.records.merging import stale

ANYWAY = "AUTOTUNE_SHIP_STALE"
AGAIN = (
    "`python scripts/stamp_records.py` keeps those of the same machine code; `autotune cache "
    "verify --retime` measures the others again on their card (docs/maintainer.md)"
)


def main(
    refuse: Annotated[bool, typer.Option("--refuse", help="Fail if a record is stale.")] = False,
) -> None:
    """Counts stale shipped records; with --refuse, AUTOTUNE_SHIP_STALE=1 lets them pass."""
    today, records = targets.here(), [*shipped.records_where(lambda _: True)]
    cards = Counter(record.device.name for record in records if stale(record, today))
    counts = ", ".join(f"{count} of {name}" for name, count in sorted(cards.items()))
    print(f"{len(records)} shipped records, {sum(cards.values())} stale{counts and f': {counts}'}")
    if cards:
        print(AGAIN)
    if cards and refuse and os.environ.get(ANYWAY) != "1":
        raise SystemExit(f"stale records are not shipped; {ANYWAY}=1 builds anyway")


if __name__ == "__main__":
    typer.run(main)
