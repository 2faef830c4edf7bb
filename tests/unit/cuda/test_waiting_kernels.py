"""Kernels wait for their predecessor before their first access to global memory."""

from __future__ import annotations

import re

import pytest

from autotune.cuda import compiler
from autotune.device import find
from autotune.families import registry
from autotune.families.config import Value
from autotune.families.plan import Template
from autotune.families.shared.quantizing import Quantizing
from autotune.model import space
from autotune.problem import ELEMENT_TYPES, Problem

# Small configurations whose plans use every kernel: the family, or more than its name.
PLANS: dict[str, tuple[str, dict[str, Value]]] = {
    "naive": ("136x72x200:f32:nn", {}),
    "tiled": ("136x72x200:f32:nn", {}),
    "simt": ("513x577x8192:f32:nn", {"reduction": "separate", "pack": "ab"}),
    "gemv": ("8x1000x4096:f32:nn", {}),
    "mma": ("136x72x1000:bf16:nn", {"pack": "none"}),
    "mma column": ("65536x64x64:bf16:nn", {"copy": "ahead"}),
    "wgmma": ("136x72x1000:bf16:nn", {"reduction": "fused"}),
}
WAIT, LAUNCH = "griddepcontrol.wait;", "griddepcontrol.launch_dependents;"
# Loads, stores and copies whose state space is global or generic.
GLOBAL = re.compile(
    r"^\s*(?:@!?%\w+\s+)?"
    r"(?:(?:ld|st|atom|red)\.(?![\w.:]*(?:param|shared|local|const)\b)|cp\.async\.(?:c[ag]|bulk))",
    re.MULTILINE,
)


def templates(name: str) -> tuple[Template, ...]:
    family, (text, values) = name.split()[0], PLANS[name]
    problem = Problem.parse(text)
    configs = space.feasible(problem, find("h100"), family).configs
    config = next(config for config in configs if values.items() <= config.values.items())
    return tuple(launch.template for launch in registry.plan(config, problem).launches)


def ptx(template: Template, arch: str) -> str:
    text = compiler.ptx(template, f"{arch}a" if template.specific else arch)
    assert isinstance(text, bytes), text.reason
    return text.decode()


def test_plans_use_every_kernel() -> None:
    sources = {template.source for family in PLANS for template in templates(family)}
    assert sources == set(registry.kernel_sources())


@pytest.mark.parametrize("family", PLANS)
def test_kernels_wait_before_global_memory(family: str) -> None:
    for template in templates(family):
        text = ptx(template, "sm_90")
        access = GLOBAL.search(text)
        assert access is not None
        assert text.count(WAIT) >= 1
        assert text.index(WAIT) < access.start(), template.label
        early = template.numbers.get("EARLY", True)  # else dependents start when it has ended
        assert (LAUNCH in text) == early, template.label
        assert text.index(WAIT) < text.find(LAUNCH) or not early, template.label


@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
def test_quantising_waits_before_global_memory(scale: str) -> None:
    quantizing = Quantizing(ELEMENT_TYPES["f32"], ELEMENT_TYPES["i8"], scale, 16, 1024, vector=4)
    for launch in quantizing.plan().launches:
        text = ptx(launch.template, "sm_90")
        access = GLOBAL.search(text)
        assert access is not None
        assert text.index(WAIT) < text.index(LAUNCH) < access.start(), launch.template.label


@pytest.mark.parametrize("family", ["simt", "gemv", "mma", "mma column"])
def test_older_devices_have_no_dependent_launch(family: str) -> None:
    for template in templates(family):
        assert "griddepcontrol" not in ptx(template, "sm_80")
