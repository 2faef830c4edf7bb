"""The mma kernel on the CPU, under AddressSanitizer and UBSan, against float64."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from pathlib import Path

import pytest
from support.host_cases import Case, case_of
from support.host_cuda import Program, build, check, run

from autotune.families.config import Config
from autotune.model.legality import order_of
from autotune.problem import ELEMENTWISE, EPILOGUES, LAYOUTS, Problem

# Together: every precision, 2 to 6 stages, one and two sets of fragments, slices, with and without
# split-K, packed operands, square and oblong warp tiles, transposed C, both ways to store.
CONFIGS = (
    "compute=bf16,swap=0,bm=64,bn=64,wm=32,wn=32,slices=1,bk=32,copy=async,pack=none,stages=3,"
    "split_k=1,promote=0,min_blocks=1,store=staged,group=4",
    "compute=f16,swap=0,bm=16,bn=64,wm=16,wn=64,slices=4,bk=128,copy=async,pack=none,stages=2,"
    "split_k=3,promote=0,min_blocks=1,store=direct,group=1",
    "compute=bf16,swap=0,bm=32,bn=32,wm=32,wn=16,slices=2,bk=64,copy=async,pack=ab,stages=4,"
    "split_k=1,promote=0,min_blocks=1,store=staged,group=1",
    "compute=f16,swap=0,bm=32,bn=128,wm=32,wn=32,slices=1,bk=64,copy=staged,pack=a,stages=2,"
    "split_k=1,promote=0,min_blocks=2,store=direct,group=8",
    "compute=tf32,swap=0,bm=64,bn=32,wm=32,wn=16,slices=1,bk=16,copy=async,pack=none,stages=6,"
    "split_k=2,promote=0,min_blocks=2,store=direct,group=1",
    "compute=tf32,swap=0,bm=32,bn=64,wm=16,wn=32,slices=2,bk=32,copy=async,pack=b,stages=3,"
    "split_k=1,promote=0,min_blocks=1,store=staged,group=1",
    "compute=tf32x3,swap=0,bm=32,bn=64,wm=16,wn=32,slices=1,bk=32,copy=async,pack=none,stages=3,"
    "split_k=2,promote=1,min_blocks=1,store=direct,group=1",
    "compute=tf32x3,swap=0,bm=64,bn=32,wm=64,wn=16,slices=2,bk=32,copy=async,pack=none,stages=2,"
    "split_k=1,promote=0,min_blocks=1,store=staged,group=1",
)
# Of one order of summation, two splits of K = 256, in other tiles and buffers; and of another.
ORDERED = (
    CONFIGS[4],
    "compute=tf32,swap=0,bm=32,bn=32,wm=32,wn=8,slices=1,bk=32,copy=async,pack=none,stages=3,"
    "split_k=2,promote=0,min_blocks=1,store=direct,group=4",
)
UNORDERED = CONFIGS[4].replace("split_k=2", "split_k=4")
ROWS = (1, 2, 7, 8, 9, 31, 33, 63, 64, 65, 100, 128)
# Transposed (swap-AB), for C of at most 8 rows.
NARROW = (
    "compute=bf16,swap=1,bm=32,bn=8,wm=16,wn=8,slices=2,bk=64,copy=async,pack=none,stages=4,"
    "split_k=2,promote=0,min_blocks=1,store=direct,group=1",
    "compute=tf32,swap=1,bm=64,bn=8,wm=32,wn=8,slices=2,bk=32,copy=async,pack=none,stages=3,"
    "split_k=1,promote=0,min_blocks=1,store=direct,group=1",
)
# A column of tiles a block, for a K of one buffer: fragments of B in registers and not, both ways
# to store, more and fewer tiles than buffers.
COLUMNS = (
    "compute=bf16,swap=0,bm=32,bn=64,wm=16,wn=32,slices=1,bk=64,copy=ahead,pack=none,stages=3,"
    "split_k=1,promote=0,min_blocks=1,store=direct,group=4",
    "compute=f16,swap=0,bm=64,bn=64,wm=16,wn=64,slices=1,bk=128,copy=ahead,pack=none,stages=2,"
    "split_k=1,promote=0,min_blocks=2,store=direct,group=2",
    "compute=bf16,swap=0,bm=64,bn=32,wm=32,wn=16,slices=1,bk=32,copy=ahead,pack=b,stages=6,"
    "split_k=1,promote=0,min_blocks=1,store=staged,group=2",
    "compute=f16,swap=0,bm=32,bn=16,wm=16,wn=8,slices=1,bk=16,copy=ahead,pack=a,stages=4,"
    "split_k=1,promote=0,min_blocks=1,store=direct,group=8",
    "compute=tf32,swap=0,bm=32,bn=64,wm=16,wn=32,slices=1,bk=32,copy=ahead,pack=none,stages=3,"
    "split_k=1,promote=0,min_blocks=1,store=direct,group=4",
    "compute=tf32x3,swap=0,bm=32,bn=32,wm=16,wn=16,slices=1,bk=64,copy=ahead,pack=none,stages=2,"
    "split_k=1,promote=0,min_blocks=1,store=staged,group=16",
)
ODD = (37, 53, 71)
# In each layout, operands that allow no vectors and end within a tile.
CASES = tuple((ODD, layout, (0, 0, 0)) for layout in LAYOUTS)
# Every other one is for each configuration. The first have padded rows, which cut vectors off.
SIZES = (
    (ODD, "nn", (1, 3, 3)),
    (ODD, "tt", (3, 1, 3)),
    ((128, 128, 256), "nn", (0, 0, 0)),  # whole tiles, the widest vectors
    ((128, 128, 256), "tt", (0, 0, 0)),
    ((140, 132, 68), "nn", (0, 0, 0)),  # edges, vectors of 4
    ((70, 66, 34), "tn", (0, 0, 0)),  # edges, vectors of 2
    ((70, 66, 34), "nt", (0, 1, 0)),  # vectors of A only
    ((1, 1, 1), "nn", (0, 0, 0)),
    ((2, 3, 513), "nn", (0, 0, 0)),  # the last part of K is short
)
# Of M, N and their share of a buffer's K.
COLUMN_CASES = (
    *(((101, 53, 15), layout, (0, 0, 0)) for layout in ("tn", "tt")),
    ((101, 53, 15), "nn", (1, 3, 3)),
    ((102, 54, 14), "nt", (2, 0, 2)),  # vectors of 2
    ((101, 53, 15), "nt", (0, 0, 0)),  # A and B through registers
    ((300, 132, 12), "nn", (0, 0, 0)),  # vectors of 4
    ((256, 128, 16), "nn", (0, 0, 0)),  # whole tiles, the widest vectors
    ((256, 128, 16), "tt", (0, 0, 0)),
    ((1, 1, 2), "nn", (0, 0, 0)),
)
NARROW_CASES = (
    *(((5, 77, 71), layout, (0, 0, 0)) for layout in LAYOUTS),
    *(((8, 128, 256), layout, (0, 0, 0)) for layout in LAYOUTS),
    ((1, 129, 130), "nn", (6, 7, 0)),
)


def config_of(text: str) -> Config:
    return Config.parse(f"mma:{text}")


def cases_of(text: str) -> list[Case]:
    if text in COLUMNS:
        return column_cases(text)
    config, narrow = config_of(text), text in NARROW
    compute = str(config.values["compute"])
    place = (*CONFIGS, *NARROW).index(text)
    cases = [
        case_of(config, Problem(*shape, compute, layout), padding=padding)
        for shape, layout, padding in (NARROW_CASES if narrow else (*CASES, *SIZES[place % 2 :: 2]))
    ]
    shape = (5, 77, 71) if narrow else ODD
    scaled = [(1.5, 0.5), (0.0, -2.0), (0.0, 0.0)]
    cases += [case_of(config, Problem(*shape, compute), alpha=a, beta=b) for a, b in scaled]
    cases += [
        case_of(config, Problem(*shape, compute, epilogue=epilogue), beta=0.5)
        for epilogue in EPILOGUES[1 + place % 3 :: 3]
        if epilogue in ELEMENTWISE or (epilogue != "swiglu" and compute in ("f16", "bf16"))
    ]
    batched = Problem(shape[0], 40, 35, compute, batch=3, epilogue="bias_relu", output="f32")
    cases += [case_of(config, batched), case_of(config, batched, padding=(1, 3, 5), beta=1.0)]
    if compute in ("f16", "bf16"):
        added = replace(batched, epilogue="residual")
        cases += [case_of(config, added), case_of(config, added, padding=(1, 3, 8), beta=1.0)]
        gated = Problem(shape[0], 80, 71, compute, epilogue="swiglu")
        cases += [case_of(config, gated), case_of(config, gated, padding=(1, 3, 5))]
        if place == 0:
            cases.append(case_of(config, replace(gated, layout="nt", batch=2, output="f32")))
    return cases


def column_cases(text: str) -> list[Case]:
    """Cases of a block's column of tiles, whose K is `bk` at most."""
    config = config_of(text)
    compute, depth = str(config.values["compute"]), config.integer("bk")
    odd = Problem(101, 53, depth - 2, compute, batch=2, epilogue="bias_relu")
    cases = [
        case_of(config, Problem(m, n, k * depth // 16, compute, layout), padding=padding)
        for (m, n, k), layout, padding in COLUMN_CASES
    ]
    cases += [case_of(config, odd, alpha=1.5, beta=0.5), case_of(config, odd, padding=(2, 1, 3))]
    cases += [case_of(config, odd, alpha=0.0, beta=beta) for beta in (0.0, 0.5)]
    if config.values["compute"] == "bf16":
        cases.append(case_of(config, replace(odd, output="f32", n=56)))
        added = replace(odd, epilogue="bias_residual", n=56)
        cases += [case_of(config, added), case_of(config, added, padding=(0, 0, 8), beta=0.5)]
    return cases


def rows_case(text: str, m: int) -> Case:
    """The first rows of the same product."""
    config, problem = config_of(text), Problem(128, 64, 256, "tf32")
    whole, case = case_of(config, problem), case_of(config, replace(problem, m=m))
    return replace(case, a=whole.a[:m], b=whole.b)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    launches = (
        launch
        for case in (
            *(case for text in (*CONFIGS, *NARROW, *COLUMNS) for case in cases_of(text)),
            *(rows_case(text, 128) for text in ORDERED),
        )
        for launch in case.plan.launches
    )
    return build((launch.template for launch in launches), host_objects)


@pytest.mark.parametrize("text", [*CONFIGS, *NARROW, *COLUMNS])
def test_mma_handles_shapes_layouts_and_scales(program: Program, text: str) -> None:
    check(program, cases_of(text))


@pytest.mark.parametrize("text", [text for text in CONFIGS if "split_k=1" not in text])
def test_splits_add_up_to_the_same_bits_in_any_order(program: Program, text: str) -> None:
    config = config_of(text)
    case = case_of(config, Problem(*ODD, str(config.values["compute"])))
    first, *repeats = run(program, [case] * 5)
    assert [result.tobytes() for result in repeats] == [first.tobytes()] * 4


def test_rows_have_the_same_bits_for_each_pair_of_m(program: Program) -> None:
    cases = [rows_case(ORDERED[place % 2], m) for place, m in enumerate(ROWS)]
    assert len({order_of(case.plan.config, case.problem) for case in cases}) == 1
    results = dict(zip(ROWS, run(program, cases), strict=True))
    pairs = [*combinations(ROWS, 2)]
    assert len(pairs) >= 64
    for few, many in pairs:
        assert results[few].tobytes() == results[many][:few].tobytes(), (few, many)


def test_other_order_of_summation_has_other_bits(program: Program) -> None:
    cases = [rows_case(text, 128) for text in (ORDERED[0], UNORDERED)]
    assert order_of(cases[0].plan.config, cases[0].problem) != order_of(
        cases[1].plan.config, cases[1].problem
    )
    one_order, other_order = run(program, cases)
    assert one_order.tobytes() != other_order.tobytes()
