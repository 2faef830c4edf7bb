"""Operands of 8 bits in `mma`: their types, scales, promotion and copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.launch_structs import members

from autotune.device import find
from autotune.families import registry
from autotune.families.plan import LaunchPlan
from autotune.model import space
from autotune.problem import LAYOUTS, Problem

L4 = find("l4")
SQUARE = Problem(1024, 1024, 1024, "f8", "nt")
FEW_ROWS = Problem(5, 4096, 4096, "f8", "nt")


def samples(problem: Problem, most: int = 20) -> list[LaunchPlan]:
    """Plans of legal configurations, spread over the space."""
    configs = space.spread(space.feasible(problem, L4, "mma").configs, most)
    assert configs
    return [registry.plan(config, problem) for config in configs]


def constants(plan: LaunchPlan) -> dict[str, int]:
    """The template arguments of the main launch."""
    return plan.main.template.numbers


@pytest.mark.parametrize("e5m2", ["a", "b", "ab"])
@pytest.mark.parametrize("problem", [SQUARE, FEW_ROWS], ids=str)
def test_swapped_kernel_gets_the_types_swapped(problem: Problem, e5m2: str) -> None:
    either = replace(problem, compute="f8e5", e5m2=e5m2)
    of_a, of_b = (element.number for element in either.operand_elements)
    for plan in samples(either):
        of_kernel = constants(plan)["TYPE_A"], constants(plan)["TYPE_B"]
        swapped = plan.config.values["swap"]
        assert of_kernel == ((of_b, of_a) if swapped else (of_a, of_b))
        scales = "scale_a", "scale_b"
        assert members(plan.main, "Call", *scales) == [*scales]


@pytest.mark.parametrize(
    ("problem", "most"),
    [
        (SQUARE, 128),
        (replace(SQUARE, accumulate="fast"), 0),
        (replace(SQUARE, accumulate="fast", scale="block"), 128),
        (replace(SQUARE, k=64), 0),
        (replace(SQUARE, k=64, scale="block"), 128),
        (replace(SQUARE, compute="i8"), 0),
    ],
    ids=str,
)
def test_sums_are_promoted_after_128_terms_at_most(problem: Problem, most: int) -> None:
    for plan in samples(problem):
        p = constants(plan)
        terms = p["PROMOTE"] * p["BK"] // p["SLICES"]
        assert terms == most if problem.scale == "none" else 0 < terms <= most


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("problem", [SQUARE, FEW_ROWS], ids=str)
def test_operands_across_k_are_read_from_transposed_copies(problem: Problem, layout: str) -> None:
    across = (layout[0] == "t", layout[1] == "n")
    for plan in samples(replace(problem, layout=layout)):
        assert (constants(plan)["TRANS_A"], constants(plan)["TRANS_B"]) == (0, 1)
        copies = [launch.template.numbers for launch in plan.launches[:-1]]
        copied = copies[0] if copies else {"TRANSPOSED_A": 0, "TRANSPOSED_B": 0}
        assert (copied["TRANSPOSED_A"], copied["TRANSPOSED_B"]) == across


def test_layout_without_its_copy_is_rejected() -> None:
    problem = replace(SQUARE, layout="nn")
    legal = space.feasible(problem, L4, "mma").configs[0]
    config = type(legal).of("mma", {**legal.values, "pack": "none"})
    rejection = str(space.rejection(config, problem, L4))
    assert rejection == "pack: 8-bit operands run along K, which takes a transposed copy of b"


def test_fp8_needs_its_instructions() -> None:
    space_of_a100 = space.feasible(SQUARE, find("a100"), "mma")
    assert not space_of_a100.configs
    assert set(space_of_a100.rejected) == {"architecture"}


def test_fp8_as_fp16_takes_more_registers() -> None:
    card, blackwell, datacentre = find("rtx-4090"), find("rtx-5090"), find("b200")
    config, family = space.feasible(SQUARE, card, "mma").configs[0], registry.find("mma")
    native, converted = (family.estimate(config, SQUARE, each) for each in (card, datacentre))
    assert family.estimate(config, SQUARE, blackwell) == native
    least = family.estimate(config, SQUARE)
    assert least.registers < native.registers < converted.registers


def test_fp8_as_fp16_has_no_tall_warp_tiles_that_spill() -> None:
    problem = Problem.parse("8192x8192x8192:f8:nn:scale=row")
    rows = {
        name: {c.values["wm"] for c in space.feasible(problem, find(name), "mma").configs}
        for name in ("rtx-4090", "b200")
    }
    assert rows["b200"] == rows["rtx-4090"] - {64} != set()


def test_int32_sums_are_stored_as_they_are() -> None:
    problem = Problem(1024, 1024, 1024, "i8", "nt", output="i32")
    assert {constants(plan)["STAGED"] for plan in samples(problem)} == {0}


@pytest.mark.parametrize("device", ["l4", "rtx 4090", "h100", "b200"])
@pytest.mark.parametrize(
    "text",
    [
        *("1x1x1:f8:nn", "1x5x65537:f8:nt", "2x2x100000:f8e5:tt", "3x1048576x1:i8:nt:out=i32"),
        *("37x53x71:f8:tt:scale=block", "257x255x8:i8:tn:batch=50", "5x3x2:f8:nn:batch=65535"),
        *("4096x4096x4096:f8:nt:scale=block", "1000x1001x1003:f8e5:nn:e5m2=ab:scale=row"),
    ],
)
def test_every_problem_has_a_configuration(text: str, device: str) -> None:
    assert space.feasible(Problem.parse(text), find(device), "mma").configs
