"""The naive and tiled kernels on the CPU, under AddressSanitizer and UBSan, against float64."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from support.host_cases import case_of
from support.host_cuda import Program, build, check

from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Alignment
from autotune.problem import ELEMENTWISE, LAYOUTS, Problem

TILED = tuple(
    f"tiled:tile_width={width},specialized={specialized}"
    for specialized in (1, 0)
    for width in (4, 5, 8, 16, 32)
)
NAIVE = ("naive:mapping=coalesced,block=8", "naive:mapping=uncoalesced,block=16")
CONFIGS = tuple(Config.parse(text) for text in (*NAIVE, *TILED))
# The tile width affects neither the strides of a batch nor the epilogue.
BATCHED = tuple(Config.parse(text) for text in (*NAIVE, TILED[2], TILED[5]))
WITH_EPILOGUE = tuple(Config.parse(text) for text in (NAIVE[0], TILED[2]))

SHAPES = (
    *((1, 1, 1), (1, 37, 1), (37, 1, 1), (1, 1, 37), (2, 3, 5)),  # below every tile
    *((32, 32, 32), (16, 48, 64)),  # whole tiles
    *((37, 53, 71), (31, 33, 17), (97, 7, 13)),  # primes and sizes near a tile
    *((130, 2, 3), (3, 130, 2), (2, 3, 513)),  # tall, wide, deep
)
ODD = (37, 53, 71)


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    problems = [Problem(*ODD, layout=layout) for layout in LAYOUTS]
    with_epilogue = [
        Problem(*ODD, layout=layout, epilogue=epilogue)
        for layout in LAYOUTS
        for epilogue in ELEMENTWISE[1:]
    ]
    instances = [*product(CONFIGS, problems), *product(WITH_EPILOGUE, with_epilogue)]
    templates = (
        launch.template
        for config, problem in instances
        for launch in registry.plan(config, problem, Alignment(1, 1, 1)).launches
    )
    return build(templates, host_objects)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_kernel_handles_any_shape(program: Program, config: Config, layout: str) -> None:
    check(program, [case_of(config, Problem(*shape, layout=layout)) for shape in SHAPES])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_rows_may_have_gaps(program: Program, config: Config, layout: str) -> None:
    check(program, [case_of(config, Problem(*ODD, layout=layout), padding=(1, 2, 11))])


@pytest.mark.parametrize("config", CONFIGS, ids=str)
def test_kernel_scales_by_alpha_and_beta(program: Program, config: Config) -> None:
    scales = ((1.5, 0.5), (-1.0, 1.0), (0.0, -2.0), (0.0, 0.0))
    check(program, [case_of(config, Problem(*ODD), alpha=a, beta=b) for a, b in scales])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("config", BATCHED, ids=str)
def test_kernel_handles_a_batch(program: Program, config: Config, layout: str) -> None:
    problem = Problem(*ODD, layout=layout, batch=3)
    padded = case_of(config, problem, padding=(1, 2, 11), gaps=(5, 0, 7), beta=0.5)
    check(program, [case_of(config, problem), padded])


@pytest.mark.parametrize("shared", ["a", "b", "ab"])
@pytest.mark.parametrize("config", BATCHED, ids=str)
def test_batch_may_share_an_operand(program: Program, config: Config, shared: str) -> None:
    check(program, [case_of(config, Problem(*ODD, batch=3), shared=shared)])


@pytest.mark.parametrize("epilogue", ELEMENTWISE[1:])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("config", WITH_EPILOGUE, ids=str)
def test_applies_the_epilogue(program: Program, config: Config, layout: str, epilogue: str) -> None:
    problem = Problem(*ODD, layout=layout, epilogue=epilogue)
    batch = replace(problem, batch=2)
    check(
        program, [case_of(config, problem, alpha=0.1, beta=0.5), case_of(config, batch, alpha=0.1)]
    )
