"""The state of the files that digests and choices are made from, under which they are kept.

It changes with every change of a file (`files.identity`), so that nothing is answered from what was
made of other files.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from autotune import files

State = list[tuple[object, ...]]


def of_folder(folder: Path) -> State:
    """The records in a folder of a device, by name; empty if it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        return sorted(
            (entry.name, *files.identity(entry.stat()))
            for entry in entries
            if entry.name.endswith(".json")
        )
    return []


def of_files(paths: Iterable[Path]) -> State:
    """Files by path; those that cannot be read are left out."""
    state: State = []
    for path in paths:
        with suppress(OSError):
            state.append((str(path), *files.identity(path.stat())))
    return state


def key(*parts: object) -> str:
    """A hash of states and of what else a digest or a choice depends on."""
    return sha256(repr(parts).encode()).hexdigest()
