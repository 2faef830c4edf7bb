"""The doctor's checks of what surrounds the package: its cache, temporary files and variables."""

from __future__ import annotations

import shutil
import tempfile

from autotune import files, settings

SET_CACHE = "set AUTOTUNE_CACHE_DIR to a directory that you can write to"
CORRECT = "correct the variable or unset it; docs/cache.md lists all"


def cache() -> tuple[bool, str, str]:
    """Whether the cache can be written."""
    directory = files.ensure(settings.cache_dir())
    try:
        with tempfile.TemporaryFile(dir=directory) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise settings.unusable(directory, "write to", error) from error
    return True, f"{directory}, {shutil.disk_usage(directory).free / 1e9:.1f} GB free", ""


def temporary_files() -> tuple[bool, str, str]:
    """Whether there is a directory for temporary files."""
    return True, str(files.temporary_dir()), ""


def environment() -> tuple[bool, str, str]:
    """Whether the variables of the environment with the package's prefix are right."""
    if faults := "; ".join(settings.faults()):
        return False, faults, CORRECT
    return True, "no variable of autotune is wrong", ""
