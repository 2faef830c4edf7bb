"""Kernels that compare the arrays of a call are compiled before the arrays are known."""

from __future__ import annotations

from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
from support.waiting import HANG_S

from autotune.problem.call import KernelCall
from autotune.user_kernels import guarded_arrays
from autotune.user_kernels.guarded_arrays import COUNT_CHANGED, comparison_of, compile_ahead


def test_kernels_for_each_type_of_array_are_compiled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = Queue[Any]()
    monkeypatch.setattr(guarded_arrays, "program_of", lambda *asking: asked.put(asking))
    arrays = "float32[7]", "int32[2,3]", "float32[1]", "int32=7", "texture(float32[4,4],clamp)"
    compile_ahead(KernelCall("k", arrays), "sm_90", tmp_path)
    own = [comparison_of(np.dtype(name), np.dtype(name)) for name in ("float32", "int32")]
    templates = [asked.get(timeout=HANG_S) for _ in range(3)]
    assert templates == [(each, "sm_90", tmp_path) for each in (COUNT_CHANGED, *own)]
