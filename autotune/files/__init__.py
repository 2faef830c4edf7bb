"""Files on disk: bounded reads, whole writes, locks, checksums, and typed values from JSON.

`reading` reads regular files up to the size that `limits` allows, and expands compressed ones.
`writing` makes and locks folders of the cache, and replaces and appends to files so that a crash, a
kill or a full disk leaves every file whole; `output` writes files that the user named. `checksum`
seals JSON documents and built code. `decoding` turns JSON into typed values, or says what is wrong.
"""

from autotune.files.reading import identity, opened, read
from autotune.files.writing import (
    LOCK_SECONDS,
    append,
    append_line,
    copy_aside,
    delete,
    ensure,
    locked,
    locked_file,
    temporary_dir,
    temporary_folder,
    unwritable,
    write,
    write_whole,
)

__all__ = [
    "LOCK_SECONDS",
    "append",
    "append_line",
    "copy_aside",
    "delete",
    "ensure",
    "identity",
    "locked",
    "locked_file",
    "opened",
    "read",
    "temporary_dir",
    "temporary_folder",
    "unwritable",
    "write",
    "write_whole",
]
