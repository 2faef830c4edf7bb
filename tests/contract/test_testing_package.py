"""`autotune.testing` alone imports pytest, and says so where it is missing."""

from __future__ import annotations

import subprocess
import sys

from support.paths import import_path


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=False,
    )


def test_importing_autotune_imports_no_pytest() -> None:
    ended = run("import sys, autotune, autotune.cli; sys.exit('pytest' in sys.modules)")
    assert ended.returncode == 0, ended.stderr


def test_missing_pytest_is_named() -> None:
    ended = run("import sys; sys.modules['pytest'] = None; import autotune.testing")
    assert "autotune.testing needs pytest; run `pip install pytest`" in ended.stderr
