"""Samples and readers of journals, databases, rescued trials and quarantines."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from support.sample_journals import CONFIGS, journal, measured
from support.sample_records import H100

from attacks.plausible import impossible
from autotune.errors import AutotuneError
from autotune.records import Store
from autotune.tuning.search.journal import rescue

STUDY = "simt"
TRIALS = 12


def studied(where: Callable[[Path], str], file: str) -> Callable[[], bytes]:
    """The file of a study with some finished trials."""

    @lru_cache(maxsize=1)
    def content() -> bytes:
        with tempfile.TemporaryDirectory() as folder:
            opened = journal(where(Path(folder)), STUDY)
            for config in CONFIGS[:TRIALS]:
                opened.claim(config)
                opened.finish(measured(config))
            opened.close()
            return (Path(folder) / file).read_bytes()

    return content


@lru_cache(maxsize=1)
def rescued() -> bytes:
    """The file of rescued trials."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("AUTOTUNE_CACHE_DIR")
        os.environ["AUTOTUNE_CACHE_DIR"] = folder
        trials = [measured(config) for config in CONFIGS[:TRIALS]]
        file = rescue.keep("/study.log", STUDY, trials)
        os.environ["AUTOTUNE_CACHE_DIR"] = before or folder
        assert file is not None
        return file.read_bytes()


def quarantined() -> bytes:
    """The file of a quarantine."""
    lines: Iterable[dict[str, str]] = (
        {"key": f"tiled:tile_width={width}@5e1f", "reason": "timeout"} for width in (8, 16, 24)
    )
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def read_journal(folder: Path) -> list[str]:
    """Opens the journal as the next run does; what it cannot read must be kept somewhere."""
    return read_study(folder, str(folder / "study.log"))


def read_sqlite(folder: Path) -> list[str]:
    """Opens the database as the next run does."""
    return read_study(folder, f"sqlite:///{folder}/study.db")


def read_rescued(folder: Path) -> list[str]:
    """Opens the journal whose trials were rescued."""
    # The name has a hash of the storage's path, which is another one in each folder.
    path = folder / "rescued.jsonl"
    os.environ["AUTOTUNE_CACHE_DIR"] = str(folder)
    target = rescue.path_of(str(folder / "study.log"), STUDY)
    target.parent.mkdir()
    path.rename(target)
    return read_study(folder, str(folder / "study.log"))


def read_study(folder: Path, where: str) -> list[str]:
    """Opens a study, reads its trials and adds one."""
    os.environ["AUTOTUNE_CACHE_DIR"] = str(folder)
    try:
        opened = journal(where, STUDY, patience_s=0.5)
    except AutotuneError:
        return []
    faults = [fault for trial in opened.told for fault in impossible(trial)]
    with suppress(AutotuneError):
        opened.finish(measured(CONFIGS[-1]))
        opened.flush()
    with suppress(AutotuneError):
        opened.close()
    return faults


def read_quarantine(folder: Path) -> list[str]:
    """Reads the quarantine and adds to it."""
    store = Store(folder)
    store.quarantined(H100)
    with suppress(AutotuneError):
        store.quarantine(H100, "tiled:tile_width=32@5e1f", "crash")
        if "tiled:tile_width=32@5e1f" not in store.quarantined(H100):
            return ["a quarantined configuration was forgotten"]
    return []
