"""The activations of the kernels, on the CPU, against float64 formulas."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.host_cases import Case
from support.host_cuda import Program, build, run

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.problem import ELEMENT_TYPES, EPILOGUES, Problem
from autotune.verification.oracle import CURVES, SHORT_TAIL, UNIT_ROUNDOFF, activated

SOURCE = """#include "common/epilogue.cuh"

template <int OUTPUT, int EPILOGUE>
__global__ void activations(float* c, const float* x, int count) {
    using Type = typename Number<OUTPUT>::Type;
    const Type* none = nullptr;
    for (int i = 0; i < count; ++i) c[i] = finish<static_cast<Epilogue>(EPILOGUE)>(x[i], none, 0);
}
"""
TYPES = ("f32", "f16", "bf16")
EACH = [(name, kind) for name in CURVES for kind in TYPES]
TAIL_ERROR = {"f32": 2.0**-18, "f16": 2.0**-14.5, "bf16": 2.0**-14.5}
"""Largest relative error of a tail of at least 1e-6."""

Values = NDArray[np.float32]


def template_of(activation: str, kind: str) -> Template:
    values = ELEMENT_TYPES[kind].number, EPILOGUES.index(activation)
    return Template("a.cu", "activations", tuple(zip(("OUTPUT", "EPILOGUE"), values, strict=True)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, host_objects: Path) -> Program:
    sources = tmp_path_factory.mktemp("activations")
    (sources / "a.cu").write_text(SOURCE)
    templates = [template_of(*names) for names in (*EACH, ("relu", "f16"))]
    return build(templates, host_objects, sources)


def by_kernel(program: Program, activation: str, kind: str, x: Values) -> Values:
    """The activation before it is rounded to the type of C."""
    arguments = Argument("pointer", "c"), Argument("pointer", "a"), Argument("i32", x.size)
    launch = Launch(template_of(activation, kind), (1, 1, 1), (1, 1, 1), 0, arguments)
    plan = LaunchPlan(Config("activations"), (launch,))
    row = x.reshape(1, -1)
    problem = Problem(1, x.size, 1)
    case = Case(problem, plan, Alignment(4, 4, 4), row, row, np.zeros_like(row), (x.size,) * 3)
    return run(program, [case])[0].view(np.float32).reshape(-1)


@pytest.fixture(scope="module")
def inputs() -> Values:
    """All finite bfloat16 numbers up to 1e30, and 400 000 that are evenly spaced."""
    exponents = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)
    small = exponents[np.abs(exponents) < 1e30]
    return np.concatenate([small, np.linspace(-20, 20, 400_001, dtype=np.float32)])


@pytest.mark.parametrize(("activation", "kind"), EACH)
def test_activation_errs_as_little_as_the_oracle_says(
    program: Program, inputs: Values, activation: str, kind: str
) -> None:
    wanted = activated(inputs, activation)
    error = np.abs(by_kernel(program, activation, kind, inputs) - wanted)
    allowed = np.abs(inputs.astype(np.float64)) + 1 + (0 if kind == "f32" else SHORT_TAIL)
    assert (error / (UNIT_ROUNDOFF * allowed)).max() <= 1


@pytest.mark.parametrize(("activation", "kind"), EACH)
def test_tail_keeps_its_relative_accuracy(
    program: Program, inputs: Values, activation: str, kind: str
) -> None:
    wanted = activated(inputs, activation)
    large = (inputs < 0) & (wanted < 1e-6 * inputs)
    result = by_kernel(program, activation, kind, inputs[large])
    assert np.abs(result / wanted[large] - 1).max() <= TAIL_ERROR[kind]


@pytest.mark.parametrize(("activation", "kind"), [*EACH, ("relu", "f16")])
def test_zeros_infinities_and_nan(program: Program, activation: str, kind: str) -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38], np.float32)
    result = by_kernel(program, activation, kind, x)
    np.testing.assert_array_equal(result, [0, 0, np.inf, 0, np.nan, np.float32(3e38), 0])
    if activation != "relu":
        assert [math.copysign(1, value) for value in result[[0, 1, 3, 6]]] == [1, -1, -1, -1]
