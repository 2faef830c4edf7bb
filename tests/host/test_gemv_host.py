"""The gemv kernel on the CPU, under AddressSanitizer and UBSan, against float64."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host_cases import Case, case_of
from support.host_cuda import Program, build, check, run

from autotune.device import find
from autotune.families.config import Config
from autotune.model import space
from autotune.problem import LAYOUTS, Problem

SCALES = [(1.5, 0.5), (0.0, -2.0), (0.0, 0.0)]

# Shapes by configuration. Together they cover all layouts with few rows and few columns, both ways
# to load, vectors of 4, 2 and 1, K with and without split-K, and edges on every side.
PROBLEMS = {
    "rows=8,columns=4,depth=4,across=8,ways=8,split_k=1,stages=1": [
        *((7, 53, 71), (53, 7, 71), (8, 64, 64), (64, 8, 64), (6, 66, 130), (5, 1000, 3)),
    ],
    "rows=8,columns=4,depth=8,across=4,ways=16,split_k=3,stages=3": [
        *((8, 40, 1024), (40, 8, 1024), (7, 53, 1171), (53, 7, 1170)),
    ],
    "rows=8,columns=8,depth=4,across=8,ways=8,split_k=2,stages=1": [(8, 132, 260), (131, 5, 259)],
    "rows=16,columns=4,depth=4,across=8,ways=16,split_k=2,stages=2": [
        *((16, 36, 512), (35, 13, 511), (9, 1, 400), (16, 16, 516)),
    ],
    "rows=4,columns=4,depth=4,across=1,ways=128,split_k=3,stages=4": [(4, 4, 6200), (3, 4, 6203)],
    "rows=2,columns=2,depth=16,across=1,ways=64,split_k=2,stages=1": [(2, 2, 4100), (3, 2, 4099)],
    "rows=1,columns=1,depth=16,across=1,ways=256,split_k=2,stages=2": [(1, 1, 20000)],
    "rows=1,columns=4,depth=16,across=16,ways=4,split_k=8,stages=1": [
        *((1, 128, 1024), (127, 1, 1023), (1, 3, 520)),
    ],
}


def config_of(text: str) -> Config:
    return Config.parse(f"gemv:{text}")


def cases_of(text: str) -> list[Case]:
    """Each problem in each layout; one of them with batches, padding and scales."""
    config = config_of(text)
    shapes = [shape for shape in PROBLEMS[text] if min(shape[:2]) <= config.integer("rows")]
    dense = [
        case_of(config, Problem(*shape, layout=layout)) for shape in shapes for layout in LAYOUTS
    ]
    m, n, k = shapes[0]
    scaled = [case_of(config, Problem(m, n, k), alpha=a, beta=b) for a, b in SCALES]
    padded = [
        case_of(config, Problem(m, n, k, layout=layout), padding=padding, beta=-1.0)
        for layout, padding in zip(
            LAYOUTS, [(4, 8, 12), (2, 6, 1), (1, 3, 2), (8, 4, 4)], strict=True
        )
    ]
    batches = [
        case_of(config, Problem(m, n, k, layout="nt", batch=3), gaps=(4, 8, 5)),
        case_of(config, Problem(n, m, k, layout="tn", batch=2), shared="b", beta=2.0),
    ]
    return dense + scaled + padded + batches


def epilogue_cases() -> list[Case]:
    config = config_of("rows=8,columns=4,depth=4,across=8,ways=8,split_k=1,stages=1")
    split = config_of("rows=8,columns=4,depth=8,across=4,ways=16,split_k=3,stages=3")
    return [
        case_of(choice, Problem(*shape, k, epilogue=epilogue), beta=0.5)
        for choice, k in ((config, 71), (split, 1024))
        for shape in ((7, 53), (53, 7))
        for epilogue in ("bias", "relu", "bias_relu", "gelu", "bias_gelu")
    ]


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    cases = [case for text in PROBLEMS for case in cases_of(text)] + epilogue_cases()
    launches = (launch for case in cases for launch in case.plan.launches)
    return build((launch.template for launch in launches), host_objects)


@pytest.mark.parametrize("text", PROBLEMS)
def test_gemm_of_any_skinny_shape_layout_scale_and_batch(program: Program, text: str) -> None:
    check(program, cases_of(text))


def test_gemv_applies_the_epilogue_to_columns_of_c(program: Program) -> None:
    check(program, epilogue_cases())


def test_equal_inputs_give_equal_bits(program: Program) -> None:
    """The launcher runs threads in a different order each time."""
    text = "rows=8,columns=4,depth=8,across=4,ways=16,split_k=3,stages=3"
    case = case_of(config_of(text), Problem(7, 53, 1171))
    first, second = run(program, [case, case])
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("text", PROBLEMS)
def test_configuration_is_legal_somewhere(text: str) -> None:
    h100, config = find("h100"), config_of(text)
    problems = (Problem(*shape, layout=layout) for shape in PROBLEMS[text] for layout in LAYOUTS)
    assert any(space.rejection(config, problem, h100) is None for problem in problems)
