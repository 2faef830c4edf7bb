"""Bundles what recordings say of their problems, to be shipped as it is.

    python scripts/bundle_recordings.py docs/results/h100/trials \
        autotune/data/shipped/nvidia-h100-80gb-hbm3-suites.json

needs no GPU. Of each recording the ten fastest become a record, which says with which kernels,
driver and compiler it was measured: where those are not today's, `autotune best` says so. Problems
that another bundle beside the new one holds are left out.
"""

from __future__ import annotations

from pathlib import Path

import typer
from shipped import SHOWN, known, table

from autotune.records import bundle
from autotune.records.rounding import rounded


def main(recordings: Path, out: Path) -> None:
    """Writes the records of a folder's recordings to OUT."""
    beside = (path for path in out.parent.glob("*.json") if path != out)
    held = {
        (record.device.slug, record.problem)
        for path in beside
        for record in bundle.loads(path.read_bytes()).records
    }
    found = [one for one in known(recordings) if (one.device.slug, one.problem) not in held]
    out.write_bytes(bundle.dumps(map(rounded, found)))
    SHOWN.print(table(found))
    SHOWN.print(f"{out}: {len(found)} problems, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
