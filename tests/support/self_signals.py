"""Command lines that send signals to themselves at chosen moments, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from support.paths import import_path

PROGRAM = """
import sys
from support import self_signals
from support.self_signals import on_call, on_import
{moments}
from autotune.__main__ import main
main()
"""

LIMIT_S = 60.0


class SignallingFinder(MetaPathFinder):
    """Sends a signal when a module is imported for the first time; finds nothing itself."""

    def __init__(self, module: str, number: int) -> None:
        self._module, self._number = module, number

    def find_spec(self, fullname: str, *_: Any) -> None:
        if fullname == self._module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), self._number)


def on_import(module: str, number: int) -> None:
    """Sends the signal when the module is imported."""
    sys.meta_path.insert(0, SignallingFinder(module, number))


def on_call(owner: Any, name: str, numbers: Sequence[int | None]) -> None:
    """Sends a signal just before each call of a function; none for None and later calls."""
    original, left = getattr(owner, name), iter(numbers)

    def replacement(*arguments: Any, **options: Any) -> Any:
        if (number := next(left, None)) is not None:
            os.kill(os.getpid(), number)
        return original(*arguments, **options)

    setattr(owner, name, replacement)


def run(moments: str, cache: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs a command line in a process that first prepares the moments of its signals."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(moments=moments), *arguments],
        env=os.environ | {"PYTHONPATH": import_path(), "AUTOTUNE_CACHE_DIR": str(cache)},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
