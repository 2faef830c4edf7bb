"""Bundles the best of recordings as shipped records.

    python scripts/bundle_recordings.py docs/results/h100/trials.zip \
        autotune/data/shipped/nvidia-h100-80gb-hbm3-suites.jsonl.xz

needs no GPU. The ten fastest rows of each recording become a record that states the kernels, driver
and compiler it was measured with: `autotune best` reports if these have changed since. Problems in
another bundle of the same folder are skipped.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from shipped_files import best_of_recordings, rounded, table

from autotune.records import bundle, shipped

CONSOLE = Console(width=110, soft_wrap=True)


def main(
    recordings: Annotated[Path, typer.Argument(help="Folder or archive of recordings.")],
    out: Annotated[Path, typer.Argument(help="Bundle to write.")],
) -> None:
    """Writes the records of a folder's recordings to OUT."""
    recorded = {
        (record.device.slug, record.problem)
        for path in shipped.paths(out.parent)
        if path != out
        for record in bundle.loads(path.read_bytes()).records
    }
    records = [
        record
        for record in best_of_recordings(recordings)
        if (record.device.slug, record.problem) not in recorded
    ]
    out.write_bytes(bundle.dumps(map(rounded, records)))
    CONSOLE.print(table(records))
    CONSOLE.print(f"{out}: {len(records)} problems, {out.stat().st_size:,} bytes")


if __name__ == "__main__":
    typer.run(main)
