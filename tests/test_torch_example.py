"""The example of a patched model, where it can only say what it needs; `tests/gpu` runs it."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "torch_inference.py"


def test_without_pytorch_or_a_gpu_it_says_so(tmp_path: Path) -> None:
    environment = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(EXAMPLE.parents[1])}
    ended = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    wanted = "a GPU" if find_spec("torch") else "PyTorch"
    assert (ended.returncode, ended.stderr) == (1, "")
    assert ended.stdout.startswith(f"this example needs {wanted}")
