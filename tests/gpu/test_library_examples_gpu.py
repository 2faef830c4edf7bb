"""The CuPy and PyCUDA examples compute correct results."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cupy_matmul
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDING = 1e-5  # of sums over 4096 elements in fp32, relative to the largest element


def test_cupy_example_in_a_graph_is_correct() -> None:
    cupy = pytest.importorskip("cupy")
    assert cupy_matmul.largest_error(cupy, 64, 512, 4096) < ROUNDING


def test_pycuda_example_is_correct() -> None:
    # In a process of its own, as it makes a context current until the process ends.
    pytest.importorskip("pycuda")
    program = (
        "import pycuda.autoprimaryctx, pycuda_matmul\n"
        "from pycuda import driver, gpuarray\n"
        "print(pycuda_matmul.largest_error(gpuarray, driver, 333, 257, 1000))"
    )
    finished = subprocess.run(
        [sys.executable, "-c", program], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert float(finished.stdout.splitlines()[-1]) < ROUNDING
