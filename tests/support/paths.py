"""Where the checkout and its tests are, for tests that read files or start processes."""

from __future__ import annotations

import os
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent


def import_path(*folders: Path) -> str:
    """The `PYTHONPATH` for a process that imports the package, `support` and `folders`."""
    return os.pathsep.join(map(str, (*folders, TESTS, ROOT)))
