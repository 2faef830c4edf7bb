"""Writes the files of an export to a directory: all of them or none."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from autotune.errors import AutotuneError, UsageError


def replace_files(directory: Path, manifest: str, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Writes all files under temporary names in a directory, then renames each to its own.

    A file that already exists is replaced only if it is as an earlier export left it. The file
    called `manifest` is JSON; its `files` states the SHA-256 of the others.

    Raises:
        UsageError: for a file name that leaves the directory.
        AutotuneError: if something else wrote or changed an existing file, or the directory cannot
            be written; no file is replaced then.
    """
    for name in files:
        if Path(name).name != name or name in (".", ".."):
            raise UsageError(f"{name!r} is no name of a file in {directory}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_own(directory, manifest, files)
        with _temporary_files(directory, files) as temporaries:
            # The manifest goes last: until then it describes the old files.
            for name in sorted(files, key=lambda name: name == manifest):
                temporaries[name].replace(directory / name)
    except OSError as error:
        raise AutotuneError(
            f"cannot write to {error.filename or directory}: {error.strerror}; give another folder"
        ) from error
    return tuple(directory / name for name in files)


def _check_own(directory: Path, manifest: str, files: Mapping[str, bytes]) -> None:
    """Refuses to replace a file that is not as an export left it."""
    digests = _digests(directory / manifest)
    for name, content in files.items():
        path = directory / name
        if not (path.exists() or path.is_symlink()):
            continue
        regular = path.is_file() and not path.is_symlink()
        if regular and name == manifest and digests is not None:
            continue
        present = path.read_bytes() if regular else None
        same = present is not None and (
            present == content or sha256(present).hexdigest() == (digests or {}).get(name)
        )
        if not same:
            raise AutotuneError(
                f"{path} is not as an export left it; move it away or give another folder"
            )


def _digests(manifest: Path) -> dict[str, str] | None:
    """The SHA-256 of each file that a manifest lists; None if there is no valid manifest."""
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def _temporary_files(directory: Path, files: Mapping[str, bytes]) -> Iterator[dict[str, Path]]:
    """The files under temporary names; those not renamed by the end are deleted."""
    temporaries: dict[str, Path] = {}
    try:
        for name, content in files.items():
            handle, path = tempfile.mkstemp(dir=directory, prefix=".export-", suffix=".tmp")
            temporaries[name] = Path(path)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporaries[name].chmod(0o644)  # mkstemp gives 0600, but others may build the export
        yield temporaries
    finally:
        for temporary in temporaries.values():
            temporary.unlink(missing_ok=True)
