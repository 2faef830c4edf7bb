"""Rejections and launches of `gemv`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.launch_structs import members, replaced

from autotune.cuda.compiler import compile
from autotune.cuda.program import Program
from autotune.device import find
from autotune.families.config import Config
from autotune.families.gemv import GEMV
from autotune.families.plan import Alignment, LaunchPlan
from autotune.lookup.lookup import lookup
from autotune.model import space
from autotune.problem import LAYOUTS, Problem
from autotune.records import Store

H100 = find("h100")
CONFIG = Config.parse("gemv:rows=8,columns=4,depth=8,across=32,ways=4,split_k=8,stages=3")
ACROSS_K = Config.parse("gemv:rows=8,columns=4,depth=8,across=4,ways=32,split_k=4,stages=3")


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    return GEMV.plan(config, problem, alignment or Alignment.dense(problem))


def argument(launched: LaunchPlan, name: str) -> int:
    return launched.launches[0].template.numbers[name]


def changed(config: Config, **values: int) -> Config:
    return Config.of("gemv", {**config.values, **values})


def test_serves_at_most_16_rows_or_columns() -> None:
    rejections = [
        space.rejection(CONFIG, Problem(*shape, 64), H100) for shape in ((17, 64), (64, 17))
    ]
    assert [str(rejection) for rejection in rejections] == [
        "shape: 17x64 has no side of at most 16",
        "shape: 64x17 has no side of at most 16",
    ]


@pytest.mark.parametrize(
    ("values", "text", "reason"),
    [
        ({"rows": 4}, "8x4096x4096", "rows: rows=4; 8 rows take 8"),
        ({"rows": 16}, "8x4096x4096", "rows: rows=16; 8 rows take 8"),
        (
            {"columns": 2, "depth": 16},
            "8x4096x4096",
            "columns: columns=2 next to each other make no vector of 4",
        ),
        ({"depth": 32}, "8x4096x4096", "batch: 128 floats a thread; 16 to 64"),
        (
            {"across": 2, "ways": 64},
            "8x4096x4096",
            "coalescing: 2 threads across read 32 bytes in a row; 64 at least",
        ),
        ({}, "8x4096x4096:nt", "coalescing: 32 threads across read 16 bytes in a row; 64 at least"),
        ({"ways": 1}, "8x4096x4096", "threads: 32 a block; 64 to 512 are tried"),
        ({"split_k": 5}, "8x4096x4096", "split-K: 160 blocks use 61% of 132 SMs"),
        (
            {"split_k": 192},
            "8x4096x4096",
            "split-K: K=4096 does not go into 192 splits of 32 or more",
        ),
        ({"split_k": 64}, "8x4096x4096", "stages: 3 stages for 2 batches"),
        (
            {"depth": 16, "ways": 16, "across": 32, "split_k": 1},
            "8x4096x4096",
            "shared memory: needs 430080 bytes a block, NVIDIA H100 80GB HBM3 allows 232448",
        ),
        (
            {"split_k": 1, "depth": 4, "stages": 1},
            "8x4096x4096",
            "in flight: 262144 bytes at a time; NVIDIA H100 80GB HBM3 needs 3350000 to be busy",
        ),
    ],
)
def test_rejections_name_reason_and_numbers(values: dict[str, int], text: str, reason: str) -> None:
    assert str(space.rejection(changed(CONFIG, **values), Problem.parse(text), H100)) == reason


def test_stages_need_cp_async() -> None:
    rejection = space.rejection(CONFIG, Problem(8, 4096, 4096), find("t4"))
    assert rejection is not None
    assert rejection.reason == "copy"


sizes = st.one_of(st.integers(1, 64), st.integers(1, 2**20))


@settings(max_examples=60)
@given(
    st.integers(1, 16),
    sizes,
    sizes,
    st.sampled_from(LAYOUTS),
    st.sampled_from((1, 7, 1000)),
    st.booleans(),
    st.sampled_from(("h100", "t4")),
)
def test_every_skinny_problem_has_a_configuration(
    rows: int, length: int, k: int, layout: str, batch: int, transposed: bool, device: str
) -> None:
    m, n = (length, rows) if transposed else (rows, length)
    problem = Problem(m, n, k, layout=layout, batch=batch)
    assert space.feasible(problem, find(device), "gemv").configs


@pytest.mark.parametrize("shape", ["1x4096x4096", "8x4096x4096", "16x4096x4096", "4096x8x4096"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_shapes_have_200_to_3000_configurations(shape: str, layout: str) -> None:
    problem = replace(Problem.parse(shape), layout=layout)
    assert 200 <= len(space.feasible(problem, H100, "gemv").configs) <= 3000


def test_grid_has_strips_splits_and_batch() -> None:
    (launch,) = plan(CONFIG, Problem(8, 4097, 4096, batch=3)).launches
    assert (launch.grid, launch.block) == ((33, 8, 3), (128, 1, 1))


def test_splits_are_whole_vectors_of_k() -> None:
    launches = (plan(CONFIG, Problem(8, 512, k)).main for k in (4096, 4091, 513))
    steps = [members(launch, "GemvSchedule", "share") for launch in launches]
    assert steps == [[512], [512], [68]]


@pytest.mark.parametrize(
    ("shape", "layout", "template"),
    [
        ((8, 512, 512), "nt", (0, 1, 0)),
        # C^T = op(B)^T op(A)^T: the operands change places, and each flips between n and t.
        ((512, 8, 512), "nn", (1, 1, 1)),
        ((512, 8, 512), "nt", (0, 1, 1)),
        ((512, 8, 512), "tn", (1, 0, 1)),
        ((512, 8, 512), "tt", (0, 0, 1)),
    ],
)
def test_few_columns_compute_the_transpose(
    shape: tuple[int, int, int], layout: str, template: tuple[int, int, int]
) -> None:
    launched = plan(ACROSS_K, Problem(*shape, layout=layout))
    assert (
        tuple(argument(launched, name) for name in ("TRANS_A", "TRANS_B", "TRANSPOSED")) == template
    )


def test_transpose_swaps_operands_and_keeps_c() -> None:
    (launch,) = plan(ACROSS_K, Problem(512, 8, 256)).launches
    assert replaced(launch) == {
        **{"a": "b", "lda": "ldb", "stride_a": "stride_b"},
        **{"b": "a", "ldb": "lda", "stride_b": "stride_a"},
    }
    assert [argument.value for argument in launch.arguments[2:5]] == [8, 512, 256]


@pytest.mark.parametrize(
    ("layout", "widths"), [("nn", (1, 2)), ("nt", (4, 2)), ("tn", (4, 2)), ("tt", (1, 2))]
)
def test_vectors_follow_the_alignment_unless_transposed(
    layout: str, widths: tuple[int, int]
) -> None:
    launched = plan(CONFIG, Problem(8, 512, 512, layout=layout), Alignment(a=4, b=2, c=1))
    assert (argument(launched, "VA"), argument(launched, "VB")) == widths


def test_vectors_never_cross_the_end_of_a_row() -> None:
    odd = Problem(6, 511, 510)
    aligned = Alignment(4, 4, 4)
    widths = [
        (argument(launched, "VA"), argument(launched, "VB"))
        for launched in (
            plan(CONFIG, replace(odd, layout=layout), aligned) for layout in ("nt", "tn")
        )
    ]
    assert widths == [(2, 2), (2, 1)]


def test_transpose_swaps_the_alignment() -> None:
    launched = plan(ACROSS_K, Problem(512, 8, 512, layout="nt"), Alignment(a=2, b=4, c=1))
    assert (argument(launched, "VA"), argument(launched, "VB")) == (4, 2)


def test_splits_store_whole_tiles_and_count() -> None:
    launched = plan(CONFIG, Problem(5, 130, 4096, batch=3))
    strips = 2
    assert launched.workspace == 4 * 8 * 128 * 8 * strips * 3
    assert launched.counters == strips * 3


def test_without_split_k_no_workspace_or_counters() -> None:
    launched = plan(changed(CONFIG, split_k=1), Problem(8, 4096, 4096))
    assert (launched.workspace, launched.counters) == (0, 0)


def test_shared_memory_fits_the_stages_or_the_sums() -> None:
    staged = 3 * 4 * (32 * 12 + 128 * 4 * 8)
    sums = 4 * 128 * 8 * 4
    assert GEMV.decode(CONFIG).shared_bytes(b_along_k=False) == staged
    single = GEMV.decode(changed(CONFIG, stages=1, depth=4))
    assert single.shared_bytes(b_along_k=False) == sums


@pytest.mark.parametrize("config", [CONFIG, ACROSS_K, changed(CONFIG, stages=1)])
def test_estimate_covers_every_layout(config: Config) -> None:
    problems = (Problem(8, 512, 512, layout=layout) for layout in LAYOUTS)
    largest = max(plan(config, problem).launches[0].shared for problem in problems)
    assert GEMV.estimate(config, Problem(8, 512, 512)).shared == largest


@pytest.mark.parametrize("device", ["t4", "a100", "h100", "b200", "rtx 5090"])
@pytest.mark.parametrize("text", ["8x4096x4096:nn", "16x4096x4096:nt:bias_gelu", "4095x3x4097:tt"])
def test_gemv_compiles_without_spills(text: str, device: str) -> None:
    problem, target = Problem.parse(text), find(device)
    configs = space.feasible(problem, target, "gemv").configs
    most = max(configs, key=lambda config: GEMV.estimate(config, problem).registers)
    (launch,) = plan(most, problem).launches
    program = compile(launch.template, target.arch, cache=None)
    assert isinstance(program, Program)
    assert (program.spills, program.local) == (0, 0)


def test_loads_of_a_batch_are_in_flight_together() -> None:
    """16 vectors of 4 floats in flight together take 64 registers."""
    config = Config.parse("gemv:rows=1,columns=4,depth=16,across=32,ways=4,split_k=8,stages=1")
    (launch,) = plan(config, Problem(1, 4096, 4096)).launches
    program = compile(launch.template, H100.arch, cache=None)
    assert isinstance(program, Program)
    assert program.registers >= 64


@pytest.mark.parametrize("shape", [(1, 4096, 4096), (4096, 8, 4096)])
def test_lookup_predicts_gemv_for_skinny_problems(
    shape: tuple[int, int, int], tmp_path: Path
) -> None:
    answer = lookup(Problem(*shape), H100, Store(tmp_path))
    assert answer is not None
    assert answer.config.family == GEMV.name


def test_kernel_that_spills_on_compute_capability_12_is_rejected() -> None:
    config = Config.parse("gemv:rows=16,columns=4,depth=4,across=8,ways=32,split_k=1,stages=1")
    problem = Problem(16, 4096, 4096)
    rejections = [space.rejection(config, problem, find(name)) for name in ("rtx-4090", "rtx-5090")]
    assert [str(each) for each in rejections] == [
        "None",
        "register estimate: 64 sums and depth=4 spill in 256 threads",
    ]
