"""The frozen mode on a real GPU, in a process other than the one that tuned."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

TUNED, OTHER = (64, 96, 128), (64, 96, 136)

TUNE = f"""
import autotune
autotune.tune(*{TUNED}, compute="f16", trials=3, progress=False)
autotune.warmup(["64x96x128:f16:nn"])
print(autotune.fingerprint("64x96x128:f16:nn"))
"""

RUN = f"""
import json, warnings
import torch, autotune
from autotune.errors import FrozenError
warnings.simplefilter("error")
outcomes = []
for m, n, k in ({TUNED}, {OTHER}):
    a, b = (torch.randn(*s, device="cuda", dtype=torch.float16) for s in ((m, k), (k, n)))
    try:
        result = autotune.matmul(a, b)
        expected = (a.double() @ b.double()).half()
        torch.testing.assert_close(result, expected, rtol=1e-2, atol=1e-2)
        outcomes.append("right")
    except FrozenError as error:
        outcomes.append(str(error))
print(json.dumps([str(autotune.fingerprint("64x96x128:f16:nn")), *outcomes]))
"""


@pytest.fixture(scope="module")
def tuned(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A cache in which one shape is tuned and compiled, and its fingerprint."""
    del torch
    pytest.importorskip("pycuda")
    cache = tmp_path_factory.mktemp("frozen")
    return cache, python(TUNE, cache, "auto")


def python(program: str, cache: Path, mode: str) -> str:
    """The last line that a program prints in a process of its own."""
    environment = os.environ | {
        "AUTOTUNE_CACHE_DIR": str(cache),
        "AUTOTUNE_MODE": mode,
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def files_of(cache: Path) -> dict[str, int]:
    """The files of a cache with the times of their last writes."""
    return {str(path): path.stat().st_mtime_ns for path in cache.rglob("*") if path.is_file()}


@pytest.mark.parametrize("mode", ["frozen", "frozen:raise"])
def test_frozen_process_runs_what_another_recorded(tuned: tuple[Path, str], mode: str) -> None:
    cache, fingerprint = tuned
    before = files_of(cache)
    ours, recorded, other = json.loads(python(RUN, cache, mode))
    assert (ours, recorded) == (fingerprint, "right")
    if mode == "frozen":
        assert other == "right"  # by cuBLAS
    else:
        assert "64x96x136:f16:nn is not recorded" in other
    assert files_of(cache) == before
