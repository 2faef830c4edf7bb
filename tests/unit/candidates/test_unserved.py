"""What an error says where a device runs no kernel of a problem."""

from __future__ import annotations

import pytest

from autotune.candidates.unserved import unserved
from autotune.device import find
from autotune.problem import Problem


@pytest.mark.parametrize(
    ("device", "compute", "text"),
    [
        ("t4", "bf16", "bf16 needs compute capability 8.0; Tesla T4 has 7.5; it runs f32,"),
        ("rtx 3090", "f8", "f8 needs compute capability 8.9; NVIDIA GeForce RTX 3090 has 8.6"),
        ("v100", "f16", "f16 needs compute capability 7.5; Tesla V100-SXM2-16GB has 7.0"),
    ],
)
def test_refused_architecture_is_named(device: str, compute: str, text: str) -> None:
    said = unserved(Problem(512, 512, 512, compute), find(device))
    assert text in said
    assert compute not in said.partition("it runs ")[2].split(", ")


def test_precisions_that_run_are_those_with_kernels() -> None:
    said = unserved(Problem(512, 512, 512, "bf16"), find("t4"))
    assert said.partition("it runs ")[2].split(", ") == ["f32", "tf32", "tf32x3", "f16"]


def test_rule_of_a_lone_family_has_an_example() -> None:
    said = unserved(Problem(512, 512, 512), find("t4"), "gemv")
    assert said.endswith("gemv: shape: 512x512 has no side of at most 16")
