"""The problems that Triton's kernels compute beside ours in a suite."""

from __future__ import annotations

from types import ModuleType

import pytest
import suite

from autotune.problem import Problem


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("37x53x71:bf16", "product"),
        ("37x53x71:f16", "product"),
        ("256x256x256:f8:nt:scale=block", "block_scaled"),
        ("37x53x71:bf16:nt", None),
        ("37x53x71:bf16:bias", None),
        ("37x53x71:bf16:batch=2", None),
        ("37x53x71:f32", None),
        ("256x256x256:f8:nt:scale=row", None),
    ],
)
def test_kernel_computes_the_whole_problem(text: str, name: str | None) -> None:
    kernels = ModuleType("triton_kernels")
    for known in ("product", "block_scaled"):
        setattr(kernels, known, known)
    assert suite.kernel_of(Problem.parse(text), kernels) == name
