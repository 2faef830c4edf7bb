"""Examples of other libraries without a GPU report what they need; `tests/gpu` runs them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.paths import ROOT

EXAMPLES = ROOT / "examples"


@pytest.mark.parametrize(
    ("example", "module", "library"),
    [
        ("torch_inference.py", "torch", "PyTorch"),
        ("torch_fingerprint.py", "torch", "PyTorch"),
        ("cupy_matmul.py", "cupy", "CuPy"),
        ("pycuda_matmul.py", "pycuda", "PyCUDA"),
    ],
)
def test_example_names_its_missing_library_or_gpu(
    example: str, module: str, library: str, tmp_path: Path
) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(EXAMPLES.parent)}
    process = subprocess.run(
        [sys.executable, str(EXAMPLES / example)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    missing = "a GPU" if find_spec(module) else library
    assert (process.returncode, process.stderr) == (1, "")
    assert process.stdout.startswith(f"this example needs {missing}")
