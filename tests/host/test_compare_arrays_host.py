"""The kernels that compare the arrays of a user kernel, on the CPU, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from support.host_cases import Case
from support.host_cuda import CUDA_SRC, Program, build, run

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.measure.verify_kernels import THREADS
from autotune.problem import Problem
from autotune.user_kernels.guarded_arrays import (
    COUNT_CHANGED,
    FINDINGS,
    PARAMETERS,
    TYPES,
    comparison_of,
)
from autotune.user_kernels.results import ExpectedArray, compare

BLOCKS, SIZE = 3, 5003
WIDE = {"float16": "float64", "float32": "float64", "complex64": "complex128"}
PAIRS = [*zip(TYPES, TYPES, strict=True), *WIDE.items()]

# Functions missing from the host's CUDA headers.
ON_THE_HOST = """#include <cmath>
#include <cstring>
static double __longlong_as_double(long long bits) {
    double x;
    std::memcpy(&x, &bits, sizeof x);
    return x;
}
"""


def template_of(pair: tuple[str, str]) -> Template:
    return comparison_of(np.dtype(pair[0]), np.dtype(pair[1]))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, host_objects: Any) -> Program:
    sources = tmp_path_factory.mktemp("sources")
    source = COUNT_CHANGED.source
    (sources / source).write_text(ON_THE_HOST + (CUDA_SRC / source).read_text())
    return build([COUNT_CHANGED, *map(template_of, PAIRS)], host_objects, sources)


def as_bytes(array: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(array).view(np.uint8).reshape(1, -1)


def found(
    program: Program,
    template: Template,
    actual: NDArray[Any],
    expected: NDArray[Any],
    *numbers: float,
) -> NDArray[Any]:
    """What each block finds."""
    values: tuple[str | float, ...] = ("a", "b", *numbers, "c")
    arguments = zip(PARAMETERS[template.kernel], values, strict=True)
    launch = Launch(
        template,
        (BLOCKS, 1, 1),
        (THREADS, 1, 1),
        THREADS * FINDINGS.itemsize,
        tuple(Argument(kind, value) for kind, value in arguments),
    )
    a, b, entries = as_bytes(actual), as_bytes(expected), as_bytes(np.zeros(BLOCKS, FINDINGS))
    case = Case(
        Problem(1, 1, 1),
        LaunchPlan(Config("compare"), (launch,)),
        Alignment(4, 4, 4),
        *(a, b, entries),
        (a.size, b.size, entries.size),
    )
    return run(program, [case])[0].view(FINDINGS).reshape(-1)


def drawn(dtype: str) -> NDArray[Any]:
    random = np.random.default_rng(0)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        limits = np.iinfo(kind)
        return random.integers(limits.min, limits.max, SIZE, kind, endpoint=True)
    values = 100 * random.standard_normal(SIZE)
    return (values + 1j * values[::-1] if kind.kind == "c" else values).astype(kind)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
@pytest.mark.parametrize("tolerance", [0.0, 0.5])
def test_device_agrees_with_numpy(
    program: Program, pair: tuple[str, str], tolerance: float
) -> None:
    expected = drawn(pair[1])
    actual = expected.astype(pair[0])
    actual[7::1000] += actual.dtype.type(1)  # wraps around at the limits of integers
    actual[4999] = 0
    wanted = ExpectedArray(expected, 1e-3 if tolerance else 0.0, tolerance)
    host = compare(actual, wanted)
    entries = found(program, template_of(pair), actual, expected, SIZE, wanted.rtol, wanted.atol)
    worst = entries[entries["ratio"].argmax()]
    assert (entries["wrong"].sum(), worst["place"]) == (host.wrong, host.place[0])
    assert host.wrong > 0
    assert entries["error"].max() == pytest.approx(host.error, rel=1e-15)


@pytest.mark.parametrize("dtype", [name for name in TYPES if np.dtype(name).kind in "fc"])
def test_device_judges_infinities_and_nan(program: Program, dtype: str) -> None:
    expected = drawn(dtype)
    expected[[3, 5, 9, 11]] = np.inf, -np.inf, np.inf, np.inf
    actual = expected.copy()
    actual[9], actual[11], actual[20], actual[4000] = -np.inf, 1, np.nan, np.inf
    wanted = ExpectedArray(expected, 1e3, 1e3)
    with np.errstate(invalid="ignore"):
        assert compare(actual, wanted).wrong == 4
    entries = found(program, template_of((dtype, dtype)), actual, expected, SIZE, 1e3, 1e3)
    worst = entries[entries["ratio"].argmax()]
    assert (entries["wrong"].sum(), worst["place"]) == (4, 9)
    assert np.isnan(entries["error"]).any()


def test_equal_arrays_have_no_error(program: Program) -> None:
    values = drawn("float32")
    values[17] = 0.0
    negative = values.copy()
    negative[17] = -0.0
    entries = found(program, template_of(("float32",) * 2), negative, values, SIZE, 0.0, 0.0)
    assert all(not entries[name].any() for name in FINDINGS.names or ())


def test_errors_within_the_tolerance_have_their_largest_multiple(program: Program) -> None:
    expected = np.full(SIZE, 2.0)
    actual = expected.copy()
    actual[1234] += 0.25
    entries = found(program, template_of(("float64",) * 2), actual, expected, SIZE, 0.125, 0.25)
    worst = entries[entries["ratio"].argmax()]
    assert (worst["place"], worst["ratio"], entries["wrong"].sum()) == (1234, 0.5, 0)


@pytest.mark.parametrize("end", [64, 77, 80])
def test_bytes_beside_the_elements_are_counted(program: Program, end: int) -> None:
    copy = np.arange(256, dtype=np.uint8)
    memory = copy.copy()
    memory[[31, 32, 40, end - 1, end, 255]] ^= 1
    counts = [
        found(program, COUNT_CHANGED, memory, copy, 256, *skipped)["wrong"].sum()
        for skipped in ((32, end), (0, 0))
    ]
    assert counts == [3, 6]
