"""What parsing a command line imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import own_machine

SCRIPT = """
import sys
from autotune import cli
try: cli.main(["tune", "64x64x64", "--sampler", "none"])
except SystemExit: pass
print([name for name in ("pydantic", "typer", "numpy", "optuna", "rich") if name in sys.modules])
"""


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_machine(monkeypatch, tmp_path)


def test_parsing_imports_no_library() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
