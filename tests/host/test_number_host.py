"""The epilogue for every type of C, on the CPU against numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.host_cases import Case, Matrix, numbers, stored
from support.host_cuda import Program, build, run
from support.oracle_errors import largest_error

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.measure.oracle import product
from autotune.problem import ELEMENT_TYPES, EPILOGUES, Problem

SOURCE = """#include "common/epilogue.cuh"

template <int OUTPUT, int VECTOR, int EPILOGUE>
__global__ void updated(typename Number<OUTPUT>::Type* c, const float* sums, float alpha,
                        float beta, const typename Number<OUTPUT>::Type* bias) {
    const int column = threadIdx.x * VECTOR;
    alignas(16) float mine[VECTOR];
    for (int i = 0; i < VECTOR; ++i) mine[i] = sums[column + i];
    update<VECTOR, static_cast<Epilogue>(EPILOGUE)>(c + column, mine, alpha, beta, bias, column);
}
"""
COLUMNS = 64
TYPES = ("f32", "f16", "bf16")  # in the order of the kernels' TYPE
WIDTHS = [
    (kind, width)
    for kind in TYPES
    for width in (1, 2, 4, 8)
    if width * ELEMENT_TYPES[kind].bytes <= 16
]


def updated(kind: str, width: int, epilogue: str) -> Template:
    values = (ELEMENT_TYPES[kind].number, width, EPILOGUES.index(epilogue))
    names = ("OUTPUT", "VECTOR", "EPILOGUE")
    return Template("updated.cu", "updated", tuple(zip(names, values, strict=True)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, host_objects: Path) -> Program:
    sources = tmp_path_factory.mktemp("updated")
    (sources / "updated.cu").write_text(SOURCE)
    templates = [updated(kind, width, "bias_relu") for kind, width in WIDTHS]
    return build(templates, host_objects, sources)


def after(
    program: Program,
    template: Template,
    c: Matrix,
    sums: Matrix,
    bias: Matrix,
    scaling: tuple[float, float],
) -> Matrix:
    """C after alpha and beta (`scaling`) and the bias are applied."""
    arguments = (
        *(Argument("pointer", "c"), Argument("pointer", "a")),
        *(Argument("f32", "alpha"), Argument("f32", "beta"), Argument("pointer", "bias")),
    )
    threads = COLUMNS // template.numbers["VECTOR"]
    launch = Launch(template, (1, 1, 1), (threads, 1, 1), 0, arguments)
    plan = LaunchPlan(Config("updated"), (launch,))
    placeholders = Problem(1, 1, 1), plan, Alignment(4, 4, 4)
    case = Case(*placeholders, sums, sums, c, (COLUMNS,) * 3, *scaling, bias=bias)
    return run(program, [case])[0]


@pytest.mark.parametrize("beta", [0.0, -0.5])
@pytest.mark.parametrize(("kind", "width"), WIDTHS)
def test_c_is_rounded_once(program: Program, kind: str, width: int, beta: float) -> None:
    random = np.random.default_rng(0)
    sums, old = (random.standard_normal((1, COLUMNS), np.float32) for _ in range(2))
    bias = stored(random.standard_normal(COLUMNS, np.float32), kind)
    c = stored(old if beta else np.full_like(old, np.nan), kind)
    problem = Problem(1, COLUMNS, 1, kind, epilogue="bias_relu")
    expected = product(
        problem, np.ones((1, 1)), sums, numbers(c), numbers(bias), alpha=0.75, beta=beta
    )
    template = updated(kind, width, "bias_relu")
    rounded = numbers(after(program, template, c, sums, bias, (0.75, beta)))
    assert largest_error(problem, rounded, expected) <= 1e-6


@pytest.mark.parametrize("kind", TYPES[1:])
def test_rounding_is_to_even_and_keeps_nan(program: Program, kind: str) -> None:
    unit = {"f16": 2.0**-10, "bf16": 2.0**-7}[kind]
    # Ties, a value just above a tie, and values beyond the exponents of fp16.
    values = [1 + unit / 2, 1 + 3 * unit / 2, 1 + 0.51 * unit, 2.0**-24, 1e38, np.inf, np.nan]
    sums = np.zeros((1, COLUMNS), np.float32)
    sums[0, : len(values)] = values
    nothing = stored(np.zeros((1, COLUMNS), np.float32), kind)
    template = updated(kind, 8, "bias_relu")
    rounded = numbers(after(program, template, nothing, sums, nothing[0], (1.0, 0.0)))
    huge = (
        np.inf if kind == "f16" else float(numbers(stored(np.array([1e38], np.float32), kind))[0])
    )
    expected = [1, 1 + 2 * unit, 1 + unit, 2.0**-24, huge, np.inf, np.nan]
    np.testing.assert_array_equal(rounded[0, : len(values)], expected)
