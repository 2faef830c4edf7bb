"""The simt kernel on the CPU, under AddressSanitizer and UBSan, against float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host_cases import Case, case_of
from support.host_cuda import Program, build, check, run

from autotune.families.config import Config
from autotune.problem import ELEMENTWISE, LAYOUTS, Problem

# Together: both copies, 2 to 5 stages, one and two fragments, every order, slices, k_sharing of
# each kind and none, packed operands, square and oblong thread tiles, 4x8 and 8x4 lanes.
CONFIGS = (
    "bm=32,bn=64,wm=16,wn=32,tm=4,tn=4,slices=1,bk=8,split_k=1,reduction=none,workers=0,chunks=1,pack=none,"
    "group=1,copy=async,stages=3,fragments=2,fence=0,order=rows,min_blocks=1",
    "bm=16,bn=32,wm=16,wn=32,tm=4,tn=4,slices=4,bk=16,split_k=6,reduction=fused,workers=0,chunks=1,pack=none,"
    "group=1,copy=async,stages=4,fragments=2,fence=0,order=rows,min_blocks=2",
    "bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,split_k=1,reduction=none,workers=0,chunks=2,pack=a,"
    "group=8,copy=staged,stages=2,fragments=1,fence=0,order=rows,min_blocks=1",
    "bm=64,bn=64,wm=32,wn=32,tm=4,tn=8,slices=2,bk=16,split_k=4,reduction=separate,workers=0,chunks=2,pack=b,"
    "group=1,copy=async,stages=2,fragments=1,fence=0,order=rows,min_blocks=1",
    "bm=64,bn=128,wm=64,wn=32,tm=8,tn=8,slices=1,bk=16,split_k=2,reduction=fused,workers=0,chunks=4,pack=ab,"
    "group=1,copy=staged,stages=2,fragments=2,fence=1,order=columns,min_blocks=1",
    "bm=32,bn=32,wm=16,wn=32,tm=4,tn=4,slices=1,bk=8,split_k=1,reduction=stream,workers=3,chunks=2,pack=none,"
    "group=1,copy=async,stages=3,fragments=2,fence=0,order=rows,min_blocks=1",
    "bm=128,bn=64,wm=64,wn=64,tm=16,tn=8,slices=2,bk=8,split_k=1,reduction=stream,workers=5,chunks=1,pack=none,"
    "group=8,copy=async,stages=5,fragments=2,fence=1,order=row-pairs,min_blocks=1",
    "bm=64,bn=128,wm=64,wn=64,tm=8,tn=16,slices=1,bk=8,split_k=1,reduction=none,workers=0,chunks=1,pack=none,"
    "group=1,copy=staged,stages=2,fragments=2,fence=1,order=column-pairs,min_blocks=1",
    "bm=64,bn=64,wm=64,wn=32,tm=8,tn=8,slices=8,bk=64,split_k=1,reduction=none,workers=0,chunks=1,pack=none,"
    "group=1,copy=async,stages=2,fragments=2,fence=0,order=snake,min_blocks=1",
)
ODD = (37, 53, 71)
# In each layout, operands that allow no vectors and end within a tile.
CASES = [(ODD, layout, (0, 0, 0)) for layout in LAYOUTS] + [
    ((128, 128, 256), "nn", (0, 0, 0)),  # whole tiles, vectors of 4
    ((128, 128, 256), "tt", (0, 0, 0)),
    ((140, 132, 68), "nn", (0, 0, 0)),  # edges, vectors of 4
    ((70, 66, 34), "tn", (0, 0, 0)),  # edges, vectors of 2
    ((70, 66, 34), "nn", (6, 2, 10)),  # padded rows
    ((1, 1, 1), "nn", (0, 0, 0)),
    ((3, 261, 2), "nn", (0, 0, 0)),
    ((2, 3, 513), "nn", (0, 0, 0)),  # the last part of K is short
]


def cases_of(text: str) -> list[Case]:
    config = Config.parse(f"simt:{text}")
    cases = [
        case_of(config, Problem(*shape, layout=layout), padding=padding)
        for shape, layout, padding in CASES
    ]
    scaled = [(1.5, 0.5), (0.0, -2.0), (0.0, 0.0)]
    cases += [case_of(config, Problem(*ODD), alpha=a, beta=b) for a, b in scaled]
    cases += [
        case_of(config, Problem(*ODD, epilogue=epilogue), beta=0.5)
        for epilogue in ELEMENTWISE[1 + CONFIGS.index(text) % 3 :: 3]
    ]
    if "stream" not in text:
        batched = Problem(33, 40, 35, batch=3, epilogue="bias_relu")
        cases += [case_of(config, batched), case_of(config, batched, padding=(1, 3, 5), beta=1.0)]
    return cases


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    launches = (
        launch for text in CONFIGS for case in cases_of(text) for launch in case.plan.launches
    )
    return build((launch.template for launch in launches), host_objects)


@pytest.mark.parametrize("text", CONFIGS)
def test_simt_handles_shapes_layouts_and_scales(program: Program, text: str) -> None:
    check(program, cases_of(text))


@pytest.mark.parametrize("text", [text for text in CONFIGS if "reduction=none" not in text])
def test_splits_add_up_to_the_same_bits_in_any_order(program: Program, text: str) -> None:
    case = case_of(Config.parse(f"simt:{text}"), Problem(*ODD))
    first, *repeats = run(program, [case] * 5)
    assert [result.tobytes() for result in repeats] == [first.tobytes()] * 4
