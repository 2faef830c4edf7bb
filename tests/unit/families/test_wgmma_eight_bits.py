"""Operands of 8 bits in `wgmma`: their types, scales, promotion and copies."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.sample_records import H100

from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.families import registry
from autotune.families.plan import LaunchPlan
from autotune.model import space
from autotune.problem import Problem

SQUARE = Problem(1024, 1024, 1024, "f8", "nt")
FEW_ROWS = Problem(16, 4096, 4096, "f8", "nt")


def samples(problem: Problem, most: int) -> list[LaunchPlan]:
    """Plans of legal configurations, spread over the space."""
    configs = space.spread(space.feasible(problem, H100, "wgmma").configs, most)
    return [registry.plan(config, problem) for config in configs]


def constants(plan: LaunchPlan) -> dict[str, int]:
    """The template arguments of the main launch."""
    return plan.main.template.numbers


@pytest.mark.parametrize("e5m2", ["a", "b", "ab"])
@pytest.mark.parametrize("problem", [SQUARE, FEW_ROWS], ids=str)
def test_swapped_kernel_gets_the_types_swapped(problem: Problem, e5m2: str) -> None:
    either = replace(problem, compute="f8e5", e5m2=e5m2)
    of_a, of_b = (element.number for element in either.operand_elements)
    for plan in samples(either, 20):
        of_kernel = constants(plan)["TYPE_A"], constants(plan)["TYPE_B"]
        swapped = plan.config.values["swap"]
        assert of_kernel == ((of_b, of_a) if swapped else (of_a, of_b))


@pytest.mark.parametrize(
    ("problem", "promoted"),
    [
        (SQUARE, True),
        (replace(SQUARE, accumulate="fast"), False),
        (replace(SQUARE, accumulate="fast", scale="block"), True),
        (replace(SQUARE, k=128), False),
        (replace(SQUARE, k=129), True),
        (replace(SQUARE, k=128, scale="block"), True),
        (replace(SQUARE, compute="i8"), False),
    ],
    ids=str,
)
def test_sums_are_promoted_where_it_is_needed(problem: Problem, promoted: bool) -> None:
    plans = samples(problem, 20)
    assert plans
    assert {constants(plan)["PROMOTE"] > 0 for plan in plans} == {promoted}


def test_promoted_parts_are_whole_instructions() -> None:
    plans = samples(SQUARE, 10_000)
    assert {constants(plan)["PROMOTE"] for plan in plans} == {1, 2, 4}
    assert all(constants(p)["TILE_N"] % (8 * constants(p)["PROMOTE"]) == 0 for p in plans)


def test_integer_instructions_have_multiples_of_16_columns() -> None:
    problem = Problem(1000, 1000, 1000, "i8", "nt")
    columns = {constants(plan)["TILE_N"] for plan in samples(problem, 10_000)}
    assert columns
    assert all(size <= 32 or size % 16 == 0 for size in columns)


def test_tile_has_columns_of_two_blocks_at_most() -> None:
    problem = Problem(2000, 2000, 2000, "f8", "nt", scale="block")
    sizes = {
        constants(p)["TILE_N"] for p in samples(problem, 10_000) if not p.config.values["swap"]
    }
    assert sizes
    for size in sizes:
        starts = {tile * size % 128 for tile in range(128)}
        assert max(starts) + size <= 256, size


@pytest.mark.parametrize(("layout", "copied"), [("nt", ""), ("nn", "b"), ("tt", "a"), ("tn", "ab")])
@pytest.mark.parametrize("compute", ["f8", "i8"])
def test_operands_across_k_are_transposed_first(compute: str, layout: str, copied: str) -> None:
    for plan in samples(Problem(512, 640, 1024, compute, layout), 10):
        launches = [launch.template for launch in plan.launches]
        packs = [template.numbers for template in launches if template.source == "pack.cu"]
        names = {
            name for numbers in packs for name in "ab" if numbers[f"TRANSPOSED_{name.upper()}"]
        }
        assert names == set(copied)
        assert (constants(plan)["A_ALONG_K"], constants(plan)["B_ALONG_K"]) == (1, 1)


def test_scales_of_blocks_take_shared_memory() -> None:
    plain = {plan.config: plan for plan in samples(SQUARE, 10_000)}
    blocks = samples(replace(SQUARE, scale="block"), 10_000)
    common = [plan for plan in blocks if plan.config in plain]
    assert common
    for plan in common:
        p = constants(plan)
        rows, others = p["TILE_M"], 2 if p["TILE_N"] != 128 else 1
        if p["TRANSPOSED"]:
            rows, others = p["TILE_N"], p["TILE_M"] // 64
        least = 4 * p["STAGES"] * p["TILE_K"] // 128 * (rows + others)
        assert plan.main.shared - plain[plan.config].main.shared >= least


@pytest.mark.parametrize(
    "problem",
    [
        SQUARE,
        replace(SQUARE, scale="row", epilogue="bias_gelu"),
        replace(SQUARE, scale="block"),
        replace(SQUARE, scale="block", m=64),
        replace(SQUARE, compute="f8e5", scale="tensor", output="f32"),
        replace(SQUARE, compute="i8", scale="row"),
        replace(SQUARE, compute="i8", output="i32"),
        replace(SQUARE, accumulate="fast", m=16),
    ],
    ids=str,
)
def test_kernels_compile_within_their_registers(problem: Problem) -> None:
    for plan in samples(problem, 3):
        program = compile(plan.main.template, "sm_90", cache=None)
        assert isinstance(program, Program), f"{plan.config}: {program}"
        assert program.local <= 64, plan.config
