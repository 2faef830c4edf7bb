"""The library of warm calls, which a checkout without a build does not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotune.runtime.native import calls
from autotune.runtime.native.build import build


@contextmanager
def library_in(folder: Path) -> Iterator[None]:
    """Takes the library from a folder, which may have none, within a `with` block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "FOLDER", folder)
        calls.library.cache_clear()
        try:
            yield
        finally:
            calls.library.cache_clear()


@contextmanager
def built_library(folder: Path) -> Iterator[Path]:
    """Compiles the library into a folder, and takes it from there within a `with` block."""
    path = build(folder)
    with library_in(folder):
        yield path
