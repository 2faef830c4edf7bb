"""The recordings that the repository keeps of measured cards."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

from autotune.measure.recording import Recording
from support.paths import ROOT

RESULTS = ROOT / "docs" / "results"


def archives(name: str) -> list[Path]:
    """The archives of each card that have a name: `trials` or `drawn`."""
    return sorted(RESULTS.glob(f"*/{name}.zip"))


def recorded(archive: Path, step: int = 1) -> Iterator[Recording]:
    """Each `step`-th recording of an archive."""
    with ZipFile(archive) as opened:
        for name in opened.namelist()[::step]:
            yield Recording.loads(opened.read(name))


def recording(card: str, name: str, archive: str = "trials") -> Recording:
    """A recording from an archive of a card."""
    with ZipFile(RESULTS / card / f"{archive}.zip") as opened:
        return Recording.loads(opened.read(f"{name}.json.gz"))


def names(card: str, archive: str = "trials") -> list[str]:
    """The names of the recordings in an archive of a card."""
    with ZipFile(RESULTS / card / f"{archive}.zip") as opened:
        return sorted(name.removesuffix(".json.gz") for name in opened.namelist())
