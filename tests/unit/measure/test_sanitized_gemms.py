"""The command of `CONTRIBUTING.md` that sanitizers run, as far as it goes without a GPU."""

from __future__ import annotations

import os
import subprocess
import sys

from support.paths import ROOT


def test_unknown_family_is_a_usage_error() -> None:
    command = [sys.executable, "tests/gpu/sanitize.py", "mmx"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "unknown: mmx; give some of wgmma, mma, gemv, simt\n"
