"""Folders for results that cannot be written where they belong, such as on a full disk."""

from __future__ import annotations

import os
from pathlib import Path

from autotune import files, settings
from autotune.errors import CacheError


def keep(name: str, content: bytes) -> Path | None:
    """Writes a file into this user's folder in the first of `settings.spare_dirs` that takes it.

    Returns:
        The file's path; None if no folder takes it.
    """
    for parent in settings.spare_dirs():
        folder = parent / f"autotune-rescued-{os.geteuid()}"
        try:
            # Others can write to the parent, and may have made the folder.
            if not settings.is_private(files.ensure(folder)):
                continue
            with files.locked(folder):
                files.write(folder / name, content)
        except (CacheError, OSError):
            continue
        return folder / name
    return None
