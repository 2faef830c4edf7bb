"""macOS, for which NVIDIA has no packages, and Windows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

# Other libraries look for files of macOS where `sys.platform` names it.
MACOS = """
import contextlib, io, json, os, sys
for name in ("cuda", "nvidia", "pycuda", "torch", "cupy"):
    sys.modules[name] = None
for name in ("memfd_create", "sched_getaffinity"):
    vars(os).pop(name, None)
os.process_cpu_count = os.cpu_count  # as there, from Python 3.13 on
sys.platform = "darwin"
from autotune.cuda import bindings
from autotune.report import doctor
sys.platform = "linux"
from autotune import cli

ended = {}
for line in json.load(sys.stdin):
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            cli.main(line.split())
        except SystemExit as end:
            ended[line] = end.code, out.getvalue(), errors.getvalue()
print(json.dumps(ended), flush=True)
os._exit(0)  # as the command line ends: no thread is waited for
"""
WORK = (
    "explore rtx-3060",
    "occupancy rtx-3060 --threads 256 --registers 40 --shared 16K",
    "best 4096x4096x4096:bf16 --device h100 --why",
    "best 5000x300x700 --device rtx-3060",
    "tune 4096x4096x4096 --device replay:h100 --trials 20",
    "ladder 4096",
    "device",
    "doctor",
)
COMPILE = (
    "occupancy --device h100",
    "tune 4096x4096x4096",
    "export 64x64x64 --device h100 --name gemm --out gemm",
)
MEASURE = ("best 64x64x64", "occupancy", "device gpu")


class Ended(NamedTuple):
    """The exit status of a command, and what it wrote."""

    status: int
    output: str
    errors: str


@pytest.fixture(scope="module")
def macos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """The commands as they end on macOS."""
    place = tmp_path_factory.mktemp("macos")
    done = subprocess.run(
        [sys.executable, "-c", MACOS],
        cwd=place,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "AUTOTUNE_CACHE_DIR": "cache"},
        input=json.dumps([*WORK, *COMPILE, *MEASURE]),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert Path(place, "explore.html").is_file()
    return {line: Ended(*end) for line, end in json.loads(done.stdout).items()}


@pytest.mark.parametrize("line", WORK)
def test_macos_does_what_needs_no_compiler(line: str, macos: dict[str, Ended]) -> None:
    assert (macos[line].status, macos[line].output != "") == (0, True), macos[line].errors


@pytest.mark.parametrize("line", [*COMPILE, *MEASURE])
def test_macos_refuses_the_rest_in_one_line(line: str, macos: dict[str, Ended]) -> None:
    status, _, errors = macos[line]
    missing = "no CUDA compiler" if line in COMPILE else "cuda.bindings cannot be imported"
    assert (status, errors.count("\n")) == (1, 1), errors
    assert missing in errors
    assert "NVIDIA has it for Linux alone, so compile and measure there or in WSL" in errors


def test_windows_is_sent_to_wsl() -> None:
    program = "import os; os.name = 'nt'; from autotune.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    expected = "error: autotune does not run on Windows; install it in WSL\n"
    assert (done.returncode, done.stderr) == (1, expected)
