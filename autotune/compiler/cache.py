"""Compiled programs on disk, one file each, under a name that covers all that made them.

A file is three parts joined by newlines: the SHA-256 of its name and the rest, a JSON header, the
cubin. One that is cut short, damaged or another's fails its checksum, counts as absent and is
overwritten.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from autotune import settings
from autotune.compiler.program import CompileFailure, Program
from autotune.errors import CacheError
from autotune.families.plan import Template

FORMAT = 2

_HEADER = ("symbol", "registers", "shared", "local", "spills", "barriers", "compiler", "log")
_LOCK_S = 120.0


def cached(
    cache: Path,
    key: str,
    template: Template,
    arch: str,
    build: Callable[[], Program | CompileFailure],
) -> Program | CompileFailure:
    """The program of the cache, else the one that `build` makes, which is then kept.

    Whoever asks for a key that is being built, in this process or another, waits for it.
    A cache that cannot be written costs a warning that names it, nothing else.
    """
    path = _directory(cache) / f"{key}.program"
    if (hit := _read(path, key, template, arch)) is not None:
        return hit
    with _alone(path):
        result = _read(path, key, template, arch) or build()
        if isinstance(result, Program):
            try:
                _write(path, result)
            except CacheError as error:
                warnings.warn(f"compiled programs are not kept: {error}", stacklevel=2)
    return result


def size(cache: Path) -> tuple[int, int]:
    """How many programs the cache holds, and their bytes."""
    sizes = [path.stat().st_size for path in paths(cache)]
    return len(sizes), sum(sizes)


def paths(cache: Path) -> list[Path]:
    """The files of all programs; their stems are the keys."""
    return sorted(_directory(cache).glob("*.program"))


def fault(path: Path) -> str | None:
    """Why the file of a program is never loaded; None if it is whole."""
    try:
        _parts(path, path.stem)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        return str(error)
    return None


def clear(cache: Path) -> int:
    """Deletes all programs, and what interrupted writers left; returns how many programs.

    Raises:
        CacheError: if the cache cannot be written to.
    """
    programs, _ = size(cache)
    try:
        for path in _directory(cache).glob("*.*"):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise settings.unwritable(_directory(cache), error) from error
    return programs


def _directory(cache: Path) -> Path:
    return cache / "programs"


def _read(path: Path, key: str, template: Template, arch: str) -> Program | None:
    try:
        header, cubin = _parts(path, key)
        return Program(template=template, arch=arch, cubin=cubin, key=key, **header)
    except (OSError, ValueError, TypeError):
        return None


def _parts(path: Path, key: str) -> tuple[dict[str, Any], bytes]:
    """Header and cubin; ValueError if the file is not that of the program of that key."""
    checksum, found, body = path.read_bytes().partition(b"\n")
    if not found or checksum != _checksum(key, body):
        raise ValueError("its checksum is wrong; the file was changed, renamed or cut short")
    header, _, cubin = body.partition(b"\n")
    return json.loads(header), cubin


def _checksum(key: str, body: bytes) -> bytes:
    return sha256(key.encode() + b"\n" + body).hexdigest().encode()


def _write(path: Path, program: Program) -> None:
    header = json.dumps({name: getattr(program, name) for name in _HEADER})
    body = header.encode() + b"\n" + program.cubin
    settings.ensure(path.parent)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_checksum(program.key, body) + b"\n" + body)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise settings.unwritable(path.parent, error) from error


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keeps other builders of the same file out; without a lock the worst is work done twice."""
    from filelock import FileLock

    lock = FileLock(path.with_suffix(".lock"), timeout=_LOCK_S)
    with contextlib.suppress(OSError, CacheError):
        settings.ensure(path.parent)
        lock.acquire()
    try:
        yield
    finally:
        if lock.is_locked:
            # Before the release: who waits then sees that the file is gone and makes a new one.
            with contextlib.suppress(OSError):
                Path(lock.lock_file).unlink()
            lock.release()
