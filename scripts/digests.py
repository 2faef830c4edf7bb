"""Writes the digests beside the shipped bundles, which look-ups learn from.

    python scripts/digests.py

needs no GPU. A digest serves as long as its bundle, the cost model's coefficients and the version
are those it was made with; look-ups else make one in the cache, which takes seconds. Bundles of
earlier versions are written again in parts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune import settings
from autotune.lookup import digest
from autotune.records import bundle, shipped
from autotune.records.bundle import BundleReader


def main(
    folder: Annotated[Path | None, typer.Argument(help="Folder of bundles; the package's.")] = None,
) -> None:
    """Writes a digest for each bundle of a folder."""
    for path in shipped.paths(folder or settings.shipped_dir()):
        print(f"{write(path)}: {digest.beside(path).stat().st_size:,} bytes")


def write(path: Path) -> Path:
    """Writes a bundle's digest, and the bundle itself in parts; returns the digest's path."""
    content = bundle.loads(path.read_bytes())
    data = bundle.dumps(content.records, content.ranges)
    path.write_bytes(data)
    out = digest.beside(path)
    out.write_bytes(digest.made(BundleReader(data).content, content.records))
    return out


if __name__ == "__main__":
    typer.run(main)
