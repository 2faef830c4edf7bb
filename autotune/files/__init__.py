"""Files on disk: bounded reads, whole writes, locks, checksums, and typed values from JSON.

`reading` reads regular files up to the size that `limits` allows. `writing` replaces and appends to
files of the cache so that a crash, a kill or a full disk leaves every file whole; `output` writes
files that the user named. `locking` locks directories and files.
`folders` makes folders, those for temporary files too. `checksum` seals JSON documents, `trust`
built code. `decoding` turns JSON into typed values, or says what is wrong.
"""

from autotune.files.folders import ensure, temporary_dir, temporary_folder
from autotune.files.locking import LOCK_SECONDS, locked, locked_file, locked_folder
from autotune.files.reading import identity, opened, read
from autotune.files.writing import (
    append,
    append_line,
    copy_aside,
    cut_torn_line,
    delete,
    move_aside,
    unwritable,
    write,
    write_whole,
)

__all__ = [
    "LOCK_SECONDS",
    "append",
    "append_line",
    "copy_aside",
    "cut_torn_line",
    "delete",
    "ensure",
    "identity",
    "locked",
    "locked_file",
    "locked_folder",
    "move_aside",
    "opened",
    "read",
    "temporary_dir",
    "temporary_folder",
    "unwritable",
    "write",
    "write_whole",
]
