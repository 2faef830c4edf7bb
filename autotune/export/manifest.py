"""The manifest of an export: what it says of the files beside it.

Names in it are only compared with names that the next export writes. The one exception, temporary
files that it may delete, have a form that no other path has.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from autotune.files import decoding, limits, read

MADE_BY = "autotune "
"""The start of a manifest's `made_by`, before the version."""

PREFIX, SUFFIX = ".export-", ".tmp"
"""The start and the end of the names of temporary files."""

# `tempfile.mkstemp` puts 8 characters between them.
_TEMPORARY = re.compile(rf"{re.escape(PREFIX)}[a-z0-9_]{{8}}{re.escape(SUFFIX)}")
_DIGEST = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Manifest:
    """The files of an export.

    Attributes:
        made_by: the version that wrote it.
        files: the SHA-256 of each file by name.
        replaces: while files are renamed, the SHA-256 of those before, by name.
        temporary: while files are renamed, the names that they have until then.
    """

    made_by: str
    files: Mapping[str, str]
    replaces: Mapping[str, str] = field(default_factory=dict)
    temporary: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.made_by.startswith(MADE_BY):
            raise ValueError(f"made_by is {self.made_by!r}; it must start with {MADE_BY!r}")
        for digest in (*self.files.values(), *self.replaces.values()):
            if not _DIGEST.fullmatch(digest):
                raise ValueError(f"{digest!r} is no SHA-256")
        for name in self.temporary:
            if not _TEMPORARY.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a temporary file")

    def digests(self, name: str) -> tuple[str, ...]:
        """The SHA-256 that a file of this name may have."""
        return tuple(digests[name] for digests in (self.files, self.replaces) if name in digests)


def read_manifest(path: Path) -> Manifest | None:
    """The manifest in a file; None if the file is missing or is no manifest of an export."""
    if path.is_symlink():
        return None
    try:
        return decoding.convert(decoding.parse(read(path, limits.MANIFEST)), Manifest, "manifest")
    except (OSError, ValueError):
        return None
