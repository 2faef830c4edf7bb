"""The files of an export, replaced together, and the manifest that says which they are.

Names in a manifest are only compared with names that the next export writes.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Generic, TypeVar

from msgspec import Meta

from autotune import files
from autotune.errors import AutotuneError, UsageError
from autotune.files import decoding, limits, read
from autotune.files.writing import keep_access

MADE_BY = "autotune "
"""The start of a manifest's `made_by`, before the version."""

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """The files of an export.

    Attributes:
        made_by: the version that wrote it.
        files: the SHA-256 of each file by name.
    """

    made_by: Annotated[str, Meta(pattern=f"^{MADE_BY}")]
    files: Mapping[str, Annotated[str, Meta(pattern=r"^[0-9a-f]{64}$")]]


def read_manifest(path: Path) -> Manifest | None:
    """The manifest in a file; None if the file is missing or is not a manifest of an export."""
    if path.is_symlink():
        return None
    try:
        return decoding.convert(decoding.parse(read(path, limits.MANIFEST)), Manifest, "manifest")
    except (OSError, ValueError):
        return None


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
    """Writes all files into a temporary folder of a directory, then renames each, the manifest
    last.

    A file that already exists is replaced only if it is as an earlier export left it, or as this
    one leaves it: an export that was killed between two renames succeeds when it is run again.

    Args:
        directory: the folder; created if it does not exist.
        manifest: the name of the JSON file that states the SHA-256 of the others, as `files`.
        contents: the content of each file by name, the manifest's included.

    Raises:
        UsageError: for a file name that leaves the directory.
        AutotuneError: if something else wrote or changed an existing file, or the directory cannot
            be written. No file is replaced then, unless a rename fails.
    """
    for name in contents:
        if Path(name).name != name or name in (".", ".."):
            raise UsageError(f"{name!r} is not a file name in {directory}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _require_own(directory, manifest, contents)
        with tempfile.TemporaryDirectory(dir=directory, prefix=".export-") as folder:
            for name, content in contents.items():
                with Path(folder, name).open("wb") as file:
                    file.write(content)
                    with suppress(FileNotFoundError):
                        keep_access(file.fileno(), (directory / name).stat())
            for name in sorted(contents, key=manifest.__eq__):
                Path(folder, name).replace(directory / name)
    except OSError as error:
        raise AutotuneError(
            f"cannot write to {error.filename or directory}: {error.strerror}; give another folder"
        ) from error
    return tuple(directory / name for name in contents)


def _require_own(directory: Path, manifest: str, contents: Mapping[str, bytes]) -> None:
    """Refuses a file that is neither as an export left it nor as this one writes it."""
    before = read_manifest(directory / manifest)
    digests = {} if before is None else before.files
    # The manifest comes first: without it, no other file is known.
    for name in sorted(contents, key=manifest.__ne__):
        path = directory / name
        if not (path.exists() or path.is_symlink()) or (name == manifest and before is not None):
            continue
        digest = _digest(path, limits.MANIFEST if name == manifest else None)
        if digest is None or digest not in (sha256(contents[name]).hexdigest(), digests.get(name)):
            raise AutotuneError(
                f"{path} is not as an export left it; move it away or give another folder"
            )


def _digest(path: Path, limit: int | None) -> str | None:
    """The SHA-256 of a file; None if it is not a regular file, a link, or larger than the limit."""
    if path.is_symlink() or not path.is_file():
        return None
    if limit is not None and path.stat().st_size > limit:
        return None
    digest = sha256()
    with files.opened(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()
