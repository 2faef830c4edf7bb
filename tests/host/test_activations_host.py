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
from autotune.measure.oracle import CURVES, GELU_TAIL, UNIT_ROUNDOFF, activated
from autotune.problem import ELEMENT_TYPES, EPILOGUES, Problem

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
ACCURATE = 2.0**-18
RELATIVE_ERROR = {
    ("gelu", "f16"): (-5.0, 2.0**-14.9),
    ("gelu", "bf16"): (-4.5, 2.0**-11.8),
}
"""How far GELU keeps a relative error, and that error, where it is not `ACCURATE` down to -5.5."""

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
    error = np.abs(by_kernel(program, activation, kind, inputs) - activated(inputs, activation))
    fit = GELU_TAIL[kind] if activation == "gelu" else 0
    allowed = UNIT_ROUNDOFF * (3 * np.abs(inputs.astype(np.float64)) + 1 + fit)
    assert (error / allowed).max() <= 1


@pytest.mark.parametrize(("activation", "kind"), EACH)
def test_negative_results_are_accurate_for_their_size(
    program: Program, inputs: Values, activation: str, kind: str
) -> None:
    least, error = RELATIVE_ERROR.get((activation, kind), (-5.5, ACCURATE))
    x = inputs[(inputs < -1e-30) & (inputs > least)]
    ratios = by_kernel(program, activation, kind, x) / activated(x, activation)
    assert np.abs(ratios - 1).max() <= error


@pytest.mark.parametrize(("activation", "kind"), [*EACH, ("relu", "f16")])
def test_zeros_infinities_and_nan(program: Program, activation: str, kind: str) -> None:
    x = np.array([0.0, -0.0, np.inf, np.nan, 3e38, -3e38, -100, -np.inf], np.float32)
    result = by_kernel(program, activation, kind, x)
    last = 0 if activation in ("relu", "gelu") else np.nan
    wanted = [0, 0, np.inf, np.nan, np.float32(3e38), 0, 0, last]
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-30)
    if activation != "relu":
        assert [math.copysign(1, value) for value in result[[0, 1, 5, 6]]] == [1, -1, -1, -1]
