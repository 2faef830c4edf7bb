"""The examples of CuPy and PyCUDA compute what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cupy_product
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ROUNDING = 1e-5  # of sums of 4096 products in fp32, as a share of the largest


def test_cupys_product_in_a_graph_is_right() -> None:
    cupy = pytest.importorskip("cupy")
    assert cupy_product.product(cupy, 64, 512, 4096) < ROUNDING


def test_pycudas_product_is_right() -> None:
    # In a process of its own: it makes a context current for as long as that lives.
    pytest.importorskip("pycuda")
    program = (
        "import pycuda.autoprimaryctx, pycuda_product\n"
        "from pycuda import driver, gpuarray\n"
        "print(pycuda_product.product(gpuarray, driver, 333, 257, 1000))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=EXAMPLES, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert float(ended.stdout.splitlines()[-1]) < ROUNDING
