"""The kernels with planted faults compile without a GPU."""

from __future__ import annotations

import pytest
from support.paths import TESTS

from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.families.plan import Template
from autotune.families.shared.arguments import each_type, scale
from autotune.problem import Problem


@pytest.mark.parametrize("text", ["f8e5:scale=row", "i8:scale=row", "f16:out=f32"])
def test_planted_kernels_compile(text: str) -> None:
    problem = Problem.parse(f"8x8x8:{text}")
    template = Template(
        "planted.cu", "planted", (*each_type(problem), scale(problem), ("FAULT", 12))
    )
    program = compile(template, "sm_90", cache=None, sources=TESTS / "gpu")
    assert isinstance(program, Program)
