"""Compiled programs on disk, one file each, under a name that covers all that made them.

A file is three parts joined by newlines: the SHA-256 of the rest, a JSON header, the cubin. One
that is cut short or damaged fails its checksum, counts as absent and is overwritten.
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

from autotune import settings
from autotune.compiler.program import CompileFailure, Program
from autotune.errors import CacheError
from autotune.plan import Template

FORMAT = 1

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
    sizes = [path.stat().st_size for path in _directory(cache).glob("*.program")]
    return len(sizes), sum(sizes)


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
        checksum, body = path.read_bytes().split(b"\n", 1)
        if checksum.decode() != sha256(body).hexdigest():
            return None
        header, cubin = body.split(b"\n", 1)
        return Program(template=template, arch=arch, cubin=cubin, key=key, **json.loads(header))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: Path, program: Program) -> None:
    header = json.dumps({name: getattr(program, name) for name in _HEADER})
    body = header.encode() + b"\n" + program.cubin
    settings.ensure(path.parent)
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".tmp")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(sha256(body).hexdigest().encode() + b"\n" + body)
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
