"""The files of an export, replaced together, and the manifest that says which they are.

Names in a manifest are only compared with names that the next export writes. The one exception,
temporary files that it may delete, have a form that no other path has.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Generic, TypeVar

from autotune import files
from autotune.errors import AutotuneError, UsageError
from autotune.files import decoding, limits, read
from autotune.files.writing import keep_access

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


_CHUNK = 1 << 20


LibraryT = TypeVar("LibraryT")


@dataclass(frozen=True)
class WrittenExport(Generic[LibraryT]):
    """An export on disk.

    Attributes:
        library: the exported kernels, and the plans of gemms.
        files: their paths.
    """

    library: LibraryT
    files: tuple[Path, ...]


def write_export(
    directory: Path, name: str, document: Mapping[str, object], contents: Mapping[str, bytes]
) -> tuple[Path, ...]:
    """Writes the files of an export and `NAME.json`, its document with the SHA-256 of each file.

    Raises:
        UsageError, AutotuneError: as `replace_files`.
    """
    digests = {file: sha256(content).hexdigest() for file, content in contents.items()}
    text = json.dumps({**document, "files": digests}, indent=1, allow_nan=False)
    manifest = f"{name}.json"
    return replace_files(directory, manifest, {**contents, manifest: text.encode() + b"\n"})


def replace_files(
    directory: Path, manifest: str, contents: Mapping[str, bytes]
) -> tuple[Path, ...]:
    """Writes all files under temporary names in a directory, then renames each to its own.

    A file that already exists is replaced only if it is as an earlier export left it. While files
    are renamed, the manifest describes those before and those after, so that the next export can
    replace whatever an interrupted one has left.

    Args:
        directory: the folder; created if it does not exist.
        manifest: the name of the JSON file that states the SHA-256 of the plain, as `files`.
        contents: the content of each file by name, the manifest's included.

    Raises:
        UsageError: for a file name that leaves the directory.
        AutotuneError: if something else wrote or changed an existing file, or the directory cannot
            be written. No file is replaced then, unless a rename fails.
    """
    for name in contents:
        if Path(name).name != name or name in (".", ".."):
            raise UsageError(f"{name!r} is no name of a file in {directory}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        before = read_manifest(directory / manifest)
        replaced = _own_files(directory, manifest, before, contents)
        _delete_leftovers(directory, before)
        plain = [name for name in contents if name != manifest]
        with _temporary_files(directory) as temporary:
            renames = [(temporary(contents[name], name), name) for name in (*plain, manifest)]
            names = [path.name for path, _ in renames]
            during = {**json.loads(contents[manifest]), "replaces": replaced, "temporary": names}
            renames.insert(0, (temporary(json.dumps(during).encode(), manifest), manifest))
            for path, name in renames:
                path.replace(directory / name)
    except OSError as error:
        raise AutotuneError(
            f"cannot write to {error.filename or directory}: {error.strerror}; give another folder"
        ) from error
    return tuple(directory / name for name in contents)


def _own_files(
    directory: Path, manifest: str, before: Manifest | None, contents: Mapping[str, bytes]
) -> dict[str, str]:
    """The SHA-256 of the files to replace; refuses a file that is not as an export left it."""
    digests: dict[str, str] = {}
    # The manifest comes first: without it, no other file is known.
    for name in sorted(contents, key=lambda name: name != manifest):
        path = directory / name
        if not (path.exists() or path.is_symlink()) or (name == manifest and before is not None):
            continue
        digest = _digest(path, limits.MANIFEST if name == manifest else None)
        own = digest == sha256(contents[name]).hexdigest() or (
            before is not None and digest in before.digests(name)
        )
        if digest is None or not own:
            raise AutotuneError(
                f"{path} is not as an export left it; move it away or give another folder"
            )
        digests[name] = digest
    return digests


def _digest(path: Path, limit: int | None) -> str | None:
    """The SHA-256 of a file; None if it is no regular file, a link, or larger than the limit."""
    if path.is_symlink() or not path.is_file():
        return None
    if limit is not None and path.stat().st_size > limit:
        return None
    digest = sha256()
    with files.opened(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _delete_leftovers(directory: Path, before: Manifest | None) -> None:
    """Deletes the temporary files that an interrupted export did not get to rename."""
    for name in before.temporary if before is not None else ():
        path = directory / name
        if path.is_file() and not path.is_symlink():
            path.unlink()


@contextlib.contextmanager
def _temporary_files(directory: Path) -> Iterator[Callable[[bytes, str], Path]]:
    """A function that writes a temporary file for that of a name, whose mode and owner it takes;
    those not renamed by the end are deleted."""
    paths: list[Path] = []

    def write(content: bytes, name: str) -> Path:
        handle, temporary = tempfile.mkstemp(dir=directory, prefix=PREFIX, suffix=SUFFIX)
        paths.append(path := Path(temporary))
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            try:
                keep_access(handle, (directory / name).stat())
            except FileNotFoundError:
                path.chmod(0o644)  # mkstemp gives 0600, but others may build the export
        return path

    try:
        yield write
    finally:
        for path in paths:
            path.unlink(missing_ok=True)
