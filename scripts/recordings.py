"""Reads recordings from a folder or from an archive, and packs a folder into an archive.

    python scripts/recordings.py docs/results/h200/drawn

adds the recordings of the folder to `docs/results/h200/drawn.zip`, replaces those of the same name,
and deletes the folder. `suite.py --trials` and `record_drawn.py` write folders; every script that
reads recordings takes either.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Annotated
from zipfile import ZipFile, ZipInfo

import typer

from autotune.files import write_whole
from autotune.measure.recording import Recording

PATTERN, ARCHIVE = "*.json.gz", ".zip"


def read(place: Path) -> list[Recording]:
    """The recordings of a folder or of an archive, by their names."""
    return [Recording.loads(text) for _, text in sorted(contents(place).items())]


def contents(place: Path) -> Mapping[str, bytes]:
    """The files of recordings in a folder or in an archive, by their names."""
    if place.suffix != ARCHIVE:
        return {path.name: path.read_bytes() for path in sorted(place.glob(PATTERN))}
    with ZipFile(place) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def main(folder: Annotated[Path, typer.Argument(help="Folder of recordings.")]) -> None:
    """Pack FOLDER into the archive beside it."""
    place = folder.with_suffix(ARCHIVE)
    files = {**(contents(place) if place.exists() else {}), **contents(folder)}
    packed = BytesIO()
    with ZipFile(packed, "w") as archive:
        for name, text in sorted(files.items()):  # compressed already
            archive.writestr(ZipInfo(name), text)
    write_whole(place, packed.getvalue())
    shutil.rmtree(folder)
    print(f"{place}: {len(files)} recordings")


if __name__ == "__main__":
    typer.run(main)
