"""Measured trials that a storage did not accept, in a file of the default cache."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from autotune import files, settings
from autotune.errors import CacheError
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import trials


def path_of(place: str, study: str) -> Path:
    """The file for a study of a storage."""
    key = sha256(f"{place}\n{study}".encode()).hexdigest()[:16]
    return settings.cache_dir() / "rescued" / f"{key}.jsonl"


def keep(place: str, study: str, unwritten: Sequence[Trial]) -> Path | None:
    """Adds a line for each trial and returns the file; None if that cannot be written either."""
    path = path_of(place, study)
    names = {"storage": place, "study": study}
    lines = [names | {"config": str(trial.config)} | trials.encode(trial) for trial in unwritten]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    try:
        with files.locked(path.parent):
            files.write(path, (path.read_bytes() if path.exists() else b"") + text)
    except (CacheError, OSError):
        return None
    return path


def restore(place: str, study: str, write: Callable[[Trial], None]) -> None:
    """Writes the trials of the file and removes it; a broken file stays, with a warning."""
    path = path_of(place, study)
    if not path.exists():
        return
    with files.locked(path.parent):
        try:
            kept = [trials.decode(json.loads(line)) for line in path.read_bytes().splitlines()]
        except FileNotFoundError:  # another process was faster
            return
        except (OSError, KeyError, TypeError, ValueError) as error:
            warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
            return
        for trial in kept:
            write(trial)
        path.unlink()
