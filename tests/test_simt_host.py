"""The register-tiled kernel on the CPU, under AddressSanitizer and UBSan, against float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from host_cuda import Case, Program, build, case_of, check

from autotune import space
from autotune.config import Config
from autotune.device import find
from autotune.problem import LAYOUTS, Problem

# Between them: both copies, 2 to 5 stages, one and two fragments, every order, K whole and split,
# square and oblong thread tiles, 4x8 and 8x4 lanes.
CONFIGS = (
    "bm=32,bn=64,wm=16,wn=32,tm=4,tn=4,bk=8,split_k=1,group=1,copy=async,stages=3,fragments=2,"
    "min_blocks=1,order=columns",
    "bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,bk=16,split_k=1,group=4,copy=staged,stages=2,fragments=1,"
    "min_blocks=1,order=rows",
    "bm=64,bn=64,wm=32,wn=32,tm=4,tn=8,bk=8,split_k=4,group=1,copy=async,stages=2,fragments=1,"
    "min_blocks=1,order=snake",
    "bm=64,bn=128,wm=64,wn=32,tm=8,tn=8,bk=32,split_k=2,group=1,copy=staged,stages=2,fragments=2,"
    "min_blocks=1,order=columns",
    "bm=128,bn=64,wm=64,wn=64,tm=16,tn=8,bk=8,split_k=1,group=1,copy=async,stages=5,fragments=2,"
    "min_blocks=1,order=snake",
)
ODD = (37, 53, 71)
# In each layout operands whose rows allow no vectors and that end amid a tile.
CASES = [(ODD, layout, (0, 0, 0)) for layout in LAYOUTS] + [
    ((128, 128, 256), "nn", (0, 0, 0)),  # whole tiles, vectors of 4
    ((128, 128, 256), "tt", (0, 0, 0)),
    ((140, 132, 68), "nn", (0, 0, 0)),  # edges, vectors of 4
    ((70, 66, 34), "tn", (0, 0, 0)),  # edges, vectors of 2
    ((70, 66, 34), "nn", (6, 2, 10)),  # rows that lie apart
    ((1, 1, 1), "nn", (0, 0, 0)),
    ((3, 261, 2), "nn", (0, 0, 0)),
    ((2, 3, 513), "nn", (0, 0, 0)),  # the last share of K is short
]


def cases_of(text: str) -> list[Case]:
    config = Config.parse(f"simt:{text}")
    cases = [
        case_of(config, Problem(*shape, layout=layout), padding=padding)
        for shape, layout, padding in CASES
    ]
    scaled = [(1.5, 0.5), (0.0, -2.0), (0.0, 0.0)]
    return cases + [case_of(config, Problem(*ODD), alpha=a, beta=b) for a, b in scaled]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    launches = (
        launch for text in CONFIGS for case in cases_of(text) for launch in case.plan.launches
    )
    directory = Path(tmp_path_factory.getbasetemp(), "host")
    return build((launch.template for launch in launches), directory)


@pytest.mark.parametrize("text", CONFIGS)
def test_multiplies_any_shape_layout_and_scale(program: Program, text: str) -> None:
    check(program, cases_of(text))


@pytest.mark.parametrize("text", CONFIGS)
def test_is_a_configuration_that_can_be_chosen(text: str) -> None:
    config, h100 = Config.parse(f"simt:{text}"), find("h100")
    # Split-K is for few tiles, groups of tile rows are for many.
    few, many = Problem(512, 512, 512), Problem(2048, 2048, 2048)
    assert None in (space.rejection(config, few, h100), space.rejection(config, many, h100))
