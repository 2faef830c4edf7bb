"""Folders for results that cannot be written where they belong, such as on a full disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from autotune import files, settings
from autotune.errors import CacheError


def folders() -> list[Path]:
    """A folder of this user's in each of `settings.spare_dirs`; they need not exist."""
    return [parent / f"autotune-rescued-{os.geteuid()}" for parent in settings.spare_dirs()]


def keep(
    name: str, content: Callable[[Path], bytes], *, first: tuple[Path, ...] = ()
) -> Path | None:
    """Writes a file into the first folder that takes it.

    Args:
        name: of the file.
        content: returns what to write to the path, which may exist.
        first: folders to try before `folders`.

    Returns:
        The file's path; None if no folder takes it.
    """
    for folder in (*first, *folders()):
        try:
            # Others can write to the parent, and may have made the folder.
            if folder not in first and not settings.is_private(files.ensure(folder)):
                continue
            with files.locked(folder):
                files.write(folder / name, content(folder / name))
        except (CacheError, OSError):
            continue
        return folder / name
    return None
