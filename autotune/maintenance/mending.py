"""Mends what `inspect` finds broken, so that nothing of it is found again.

The damaged file is kept beside the mended one as `<file>.broken-<n>`, except for a program, which
is compiled again when it is needed.
"""

from __future__ import annotations

from autotune import files
from autotune.files import limits
from autotune.maintenance.inventory import Item, is_object


def mend(item: Item) -> str:
    """Mends a broken file and returns what was done, such as `deleted`.

    Raises:
        CacheError: if the file or the cache cannot be read or written.
    """
    if item.kind == "program":
        files.delete(item.path)
        return "deleted; it is compiled again when needed"
    # The target of a link may be a file that those who share the cache must not read.
    if not item.path.is_symlink() and item.kind == "quarantine" and _without_broken_lines(item):
        return "broken lines left out; the damaged one is kept beside it"
    return f"set aside as {files.move_aside(item.path, 'broken').name}"


def _without_broken_lines(item: Item) -> bool:
    """Leaves out the lines that are no JSON objects; False if the file cannot be read."""
    with files.locked(item.path.parent):
        try:
            lines = files.read(item.path, limits.QUARANTINE).splitlines(keepends=True)
        except OSError:
            return False
        whole = b"".join(line for line in lines if line.endswith(b"\n") and is_object(line))
        files.copy_aside(item.path, "broken")
        files.write(item.path, whole)
    return True
