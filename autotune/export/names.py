"""What an export may be called, and the files that it writes: all of them or none."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from autotune.errors import AutotuneError, UsageError

LONGEST_NAME = 40

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# Targets that CMake has of its own, the example, and headers that the library includes.
_TAKEN = frozenset(
    {"all", "clean", "help", "install", "package", "test", "main"}
    | {"dlfcn", "math", "pthread", "stddef", "stdint", "stdio", "stdlib", "string"}
)


def check_name(name: str) -> str:
    """The name, if it can be one of C functions and of files.

    Raises:
        UsageError: if it cannot.
    """
    fault = None
    if not _NAME.fullmatch(name):
        fault = "is no C identifier: letters, digits and underscores, a letter in front"
    elif name.lower() in _TAKEN:
        fault = "is taken, by CMake, the example or a header of C"
    elif len(name) > LONGEST_NAME:
        fault = f"has {len(name)} characters; {LONGEST_NAME} at most"
    if fault is not None:
        raise UsageError(f"name {name!r} {fault}; give another, such as gemm")
    return name


def write(directory: Path, manifest: str, files: Mapping[str, bytes]) -> tuple[Path, ...]:
    """Writes files into a directory, each whole, after all of them were written elsewhere in it.

    Files that are there already are replaced only if they are as an export of that name left them:
    the one called `manifest` is JSON, and its `files` says the SHA-256 of the others.

    Raises:
        UsageError: for a file name that leaves the directory.
        AutotuneError: if a file is there that something else wrote or changed, or the directory
            cannot be written; nothing was replaced then.
    """
    for name in files:
        if Path(name).name != name or name in (".", ".."):
            raise UsageError(f"{name!r} is no name of a file in {directory}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_own(directory, manifest, files)
        with _written(directory, files) as temporaries:
            # The manifest goes last: until then it knows the old files.
            for name in sorted(files, key=lambda one: one == manifest):
                temporaries[name].replace(directory / name)
    except OSError as error:
        raise AutotuneError(
            f"cannot write to {error.filename or directory}: {error.strerror}; give another folder"
        ) from error
    return tuple(directory / name for name in files)


def _check_own(directory: Path, manifest: str, files: Mapping[str, bytes]) -> None:
    known = _known(directory / manifest)
    for name, content in files.items():
        path = directory / name
        if not (path.exists() or path.is_symlink()):
            continue
        own = path.is_file() and not path.is_symlink()
        if own and name == manifest and known is not None:
            continue
        present = path.read_bytes() if own else None
        same = present is not None and (
            present == content or sha256(present).hexdigest() == (known or {}).get(name)
        )
        if not same:
            raise AutotuneError(
                f"{path} is not as an export left it; move it away or give another folder"
            )


def _known(manifest: Path) -> dict[str, str] | None:
    """The SHA-256 of each file that a manifest lists; None if it is none."""
    try:
        data = json.loads(manifest.read_text(encoding="utf-8"))
        return {str(name): str(digest) for name, digest in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


@contextlib.contextmanager
def _written(directory: Path, files: Mapping[str, bytes]) -> Iterator[dict[str, Path]]:
    """The files under other names, which are gone afterwards."""
    temporaries: dict[str, Path] = {}
    try:
        for name, content in files.items():
            handle, place = tempfile.mkstemp(dir=directory, prefix=".export-", suffix=".tmp")
            temporaries[name] = Path(place)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            temporaries[name].chmod(0o644)  # from 0600: others may build what is exported
        yield temporaries
    finally:
        for path in temporaries.values():
            path.unlink(missing_ok=True)
