"""The 8-bit types on the CPU: every number of each, and the roundings between them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from support.eight_bits import VALUES, nearest
from support.host_cases import Case
from support.host_cuda import Program, build, run

from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.problem import ELEMENT_TYPES, Problem

SOURCE = """#include "common/number.cuh"

template <int TYPE, int VECTOR>
__global__ void rounded(float* c, const float* a, int count) {
    using Type = typename Number<TYPE>::Type;
    for (int i = 0; i < count; i += VECTOR) {
        alignas(16) Type stored[VECTOR];
        alignas(16) float values[VECTOR];
        for (int j = 0; j < VECTOR; ++j) values[j] = a[i + j];
        store_numbers<VECTOR>(stored, values);
        load_numbers<VECTOR>(values, stored);
        for (int j = 0; j < VECTOR; ++j) c[i + j] = values[j];
    }
}

template <int TYPE>
__global__ void widened(float* c) {
    for (int i = 0; i < 256; ++i)
        c[i] = to_float(typename Number<TYPE>::Type{static_cast<BITS>(i)});
}
"""
TYPES = {"e4m3": (1, 4, 16), "e5m2": (1, 2, 8), "i8": (1, 4, 16), "i32": (1, 4)}
BITS = {"e4m3": "unsigned char", "e5m2": "unsigned char", "i8": "signed char"}


def rounding(kind: str, width: int) -> Template:
    values = (("TYPE", ELEMENT_TYPES[kind].number), ("VECTOR", width))
    return Template("rounded.cu", "rounded", values)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, host_objects: Path) -> Program:
    sources = tmp_path_factory.mktemp("rounded")
    source, _, widened = SOURCE.partition("template <int TYPE>\n__global__ void widened")
    (sources / "rounded.cu").write_text(source)
    for kind, bits in BITS.items():
        text = (
            f'#include "common/number.cuh"\ntemplate <int TYPE>\n__global__ void widened{widened}'
        )
        (sources / f"widened_{kind}.cu").write_text(text.replace("BITS", bits))
    templates = [rounding(kind, width) for kind, widths in TYPES.items() for width in widths]
    widenings = [
        Template(f"widened_{kind}.cu", "widened", (("TYPE", ELEMENT_TYPES[kind].number),))
        for kind in BITS
    ]
    return build([*templates, *widenings], host_objects, sources)


def result(
    program: Program, template: Template, values: NDArray[np.float32], *rest: Argument
) -> NDArray[np.float32]:
    """The results of a kernel of one thread for each of the values."""
    launch = Launch(template, (1, 1, 1), (1, 1, 1), 0, (Argument("pointer", "c"), *rest))
    plan = LaunchPlan(Config("rounded"), (launch,))
    row = values[None]
    empty = np.zeros_like(row)
    placeholders = Problem(1, 1, 1), plan, Alignment(4, 4, 4)
    case = Case(*placeholders, row, row, empty, (values.size,) * 3)
    after: NDArray[np.float32] = run(program, [case])[0][0]
    return after


def ordinary() -> NDArray[np.float32]:
    """Every number of the types, those between neighbours and close to them, and the extremes."""
    numbers = np.concatenate([values[np.isfinite(values)] for values in VALUES.values()])
    numbers = np.unique(np.concatenate([numbers, -numbers])).astype(np.float64)
    middles = (numbers[1:] + numbers[:-1]) / 2
    near = [
        np.nextafter(middles.astype(np.float32), side, dtype=np.float32) for side in (-1e9, 1e9)
    ]
    extremes = [464.0, 480.0, 65536.0, 1e38, 3e9, 2.0**31, np.inf, 1e-30, 2.0**-10, 2.0**-17]
    values = np.concatenate([numbers, middles, *near, extremes, np.negative(extremes)])
    padded = np.concatenate([values, np.zeros(-values.size % 16)])
    return padded.astype(np.float32)


@pytest.mark.parametrize("kind", BITS)
def test_every_number_becomes_its_fp32_value(program: Program, kind: str) -> None:
    template = Template(f"widened_{kind}.cu", "widened", (("TYPE", ELEMENT_TYPES[kind].number),))
    after = result(program, template, np.zeros(256, np.float32))
    np.testing.assert_array_equal(after, VALUES[kind])


@pytest.mark.parametrize(
    ("kind", "width"), [(kind, width) for kind, widths in TYPES.items() for width in widths]
)
def test_rounding_is_to_the_nearest_even_within_the_range(
    program: Program, kind: str, width: int
) -> None:
    values = ordinary()
    pointers = Argument("pointer", "a"), Argument("i32", values.size)
    after = result(program, rounding(kind, width), values, *pointers)
    np.testing.assert_array_equal(after, nearest(values, kind))


@pytest.mark.parametrize(("kind", "expected"), [("e4m3", np.nan), ("e5m2", np.nan), ("i8", 0)])
def test_nan_stays_nan_where_the_type_has_it(program: Program, kind: str, expected: float) -> None:
    values = np.full(16, np.nan, np.float32)
    pointers = Argument("pointer", "a"), Argument("i32", values.size)
    for width in TYPES[kind]:
        after = result(program, rounding(kind, width), values, *pointers)
        np.testing.assert_array_equal(after, np.full(16, expected, np.float32))
