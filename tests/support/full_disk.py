"""Disks that fill up while a file is written."""

from __future__ import annotations

import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """Writing beyond `size` bytes of a file fails half way, as on a full disk."""
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[None]:
    """Mounts a file system of `size` bytes; skips the test where that is not allowed."""
    path.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    try:
        mounted = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"no file system can be mounted here: {error}")
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def enlarge(path: Path, size: int) -> None:
    """Makes room on a `small_disk`."""
    subprocess.run(["mount", "-o", f"remount,size={size}", str(path)], check=True)
