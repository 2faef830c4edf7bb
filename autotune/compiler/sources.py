"""Hashes of CUDA sources with every header they include."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from autotune import files, settings
from autotune.files import limits

_INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)


def source_hash(
    *sources: str, directory: Path | None = None, includes: Sequence[Path] | None = None
) -> str:
    """SHA-256 over the named CUDA sources and every header they reach.

    Args:
        sources: file names in `directory`.
        directory: the folder of the CUDA sources; None takes the package's.
        includes: folders searched for headers; None takes `directory/include`.

    Raises:
        OSError: if a named source cannot be read.
    """
    root = directory or settings.source_dir()
    if directory is None and includes is None:
        return _hash_in_state(sources, root, tuple(_state(str(root))))
    return _hash(sources, root, (root / "include",) if includes is None else includes)


def source_hashes(sources: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The `source_hash` of each named list of the package's sources.

    Raises:
        OSError: if a named source cannot be read.
    """
    root = settings.source_dir()
    state = tuple(_state(str(root)))  # once: it takes longer than a cached hash
    return {name: _hash_in_state(tuple(listed), root, state) for name, listed in sources.items()}


@lru_cache(maxsize=64)
def _hash_in_state(
    sources: tuple[str, ...], root: Path, state: tuple[tuple[str, int, int], ...]
) -> str:
    """The hash of the package's sources, whose folder in that state holds all their headers."""
    del state
    return _hash(sources, root, (root / "include",))


def _state(folder: str) -> Iterator[tuple[str, int, int]]:
    """The state of all files below a folder."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _state(entry.path)
            else:
                status = entry.stat()
                yield entry.path, status.st_mtime_ns, status.st_size


def _hash(sources: Sequence[str], root: Path, folders: Sequence[Path]) -> str:
    pending = [(name, root / name) for name in sources]
    digests: dict[Path, tuple[str, str]] = {}
    while pending:
        name, path = pending.pop()
        if path not in digests:
            status = path.stat()
            digest, headers = _read(path, status.st_mtime_ns, status.st_size)
            digests[path] = name, digest
            beside = () if path.parent == root else (path.parent,)
            for header in headers:
                pending += _resolved(header, (*beside, *folders))
    return sha256(json.dumps(sorted(digests.values())).encode()).hexdigest()


@lru_cache(maxsize=256)
def _read(path: Path, changed_ns: int, size: int) -> tuple[str, tuple[str, ...]]:
    """The SHA-256 of a file in that state, and the headers that it includes."""
    del changed_ns, size
    text = files.read(path, limits.SOURCE)
    return sha256(text).hexdigest(), tuple(name.decode() for name in _INCLUDE.findall(text))


def _resolved(header: str, folders: Sequence[Path]) -> list[tuple[str, Path]]:
    """The file an include directive resolves to, with its name in the hash; empty if none exists.

    Folders are searched in order, as the compiler does.
    """
    paths = (folder / header for folder in folders)
    matches = [(f"{path.parent.name}/{path.name}", path) for path in paths if path.is_file()]
    return matches[:1]
