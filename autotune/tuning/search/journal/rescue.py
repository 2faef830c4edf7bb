"""Measured trials that a storage did not accept, in a file of the default cache or elsewhere."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

from autotune import files, settings
from autotune.errors import CacheError, UnsavedError
from autotune.files import limits, spare
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import trials

BROKEN = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""The exceptions that decoding a broken line may raise."""


def unwritten(why: CacheError, place: str, study: str, lost: Sequence[Trial]) -> CacheError:
    """Keeps trials that a storage did not accept; returns the error that says where they are."""
    count = f"{why}; {len(lost)} measured trials"
    path = keep(place, study, lost)
    if path is None:
        error = f"{count} are lost: nor can the cache or a folder for temporary files be written"
        return UnsavedError(error, trials=tuple(lost))
    hurry = "" if path == path_of(place, study) else ", which a restart of the machine may delete,"
    return CacheError(f"{count} are kept in {path}{hurry} until this is opened again")


def path_of(place: str, study: str) -> Path:
    """The file of the default cache for a study of a storage."""
    name = sha256(f"{place}\n{study}".encode()).hexdigest()[:16] + ".jsonl"
    return settings.cache_place() / "rescued" / name


def keep(place: str, study: str, unwritten: Sequence[Trial]) -> Path | None:
    """Adds a line for each trial to a file and returns its path; None if none can be written."""
    names = {"storage": place, "study": study}
    lines = [names | {"config": str(trial.config)} | trials.encode(trial) for trial in unwritten]
    text = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    cached = path_of(place, study)
    return spare.keep(
        cached.name, lambda path: (_content(path) or b"") + text, first=(cached.parent,)
    )


def restore(place: str, study: str, write: Callable[[Trial], None]) -> None:
    """Writes the trials of the files, and removes those that are whole.

    A broken line, or a file that cannot be read, stays and costs a warning.
    """
    cached = path_of(place, study)
    private = [folder for folder in spare.folders() if settings.is_private(folder)]
    for path in (cached, *(folder / cached.name for folder in private)):
        if path.exists():
            with files.locked(path.parent):
                _restore(path, write)


def _restore(path: Path, write: Callable[[Trial], None]) -> None:
    try:
        content = _content(path)
    except OSError as error:
        warnings.warn(f"{path}: passed over: cannot be read: {error.strerror}", stacklevel=2)
        return
    if content is None:  # another process was faster
        return
    decoded = [_decoded(line) for line in content.splitlines()]
    for number, trial in enumerate(decoded, start=1):
        if isinstance(trial, Trial):
            write(trial)
        else:
            warnings.warn(f"{path}: line {number} is passed over: {trial}", stacklevel=2)
    if all(isinstance(trial, Trial) for trial in decoded):
        path.unlink()


def _decoded(line: bytes) -> Trial | Exception:
    """The trial of a line, or why it is broken."""
    try:
        return trials.decode(json.loads(line))
    except BROKEN as error:
        return error


def _content(path: Path) -> bytes | None:
    """The content of the file; None if there is none."""
    try:
        return files.read(path, limits.RESCUED)
    except FileNotFoundError:
        return None
