"""The verification kernels, on the CPU against numpy and compiled for every architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, replace
from functools import cache
from math import erf
from pathlib import Path
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from support.host_cases import Case, Matrix, numbers, random_scales, stored
from support.host_cuda import CUDA_SRC, Program, build, run
from support.oracle_errors import error_unit, largest_error
from support.oracle_products import product

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure
from autotune.cuda.program import Program as CudaProgram
from autotune.errors import RunnerError
from autotune.families.config import Config
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.measure import exact, operands, verify_kernels
from autotune.measure.operands import OperandScales
from autotune.measure.oracle import activated, gates
from autotune.measure.verify import AMAX_ERROR
from autotune.measure.verify_kernels import (
    EVEN,
    LOWERED,
    NORMAL,
    POISONED,
    RAISED,
    REDUCTION_SHARED,
    REFERENCE_SHARED,
    THREADS,
    ZERO,
    templates_of,
)
from autotune.problem import (
    E5M2_OPERANDS,
    ELEMENT_TYPES,
    ELEMENTWISE,
    LAYOUTS,
    SCALES,
    Problem,
)
from autotune.problem.integers import ceil_div

GUARD = 16
ROWS, COLUMNS, LD = 40, 50, 64
TYPES = ("f32", "f16", "bf16")
EIGHT_BIT = ("e4m3", "e5m2", "i8")
ALL = (*TYPES, *EIGHT_BIT, "i32")
BITS = {name: np.dtype(f"u{element.bytes}").type for name, element in ELEMENT_TYPES.items()}
POISON = {name: verify_kernels.POISON[np.dtype(kind).itemsize] for name, kind in BITS.items()}
BLOCKS = 3
NOTHING = np.zeros((1, 4), np.float32)

Shape = operands.GuardedMatrix
ONE = Shape(ROWS, COLUMNS, LD)
# Memory layouts of a batch: matrices in sequence, with gaps, with rows side by side.
SHAPES = {
    "one": ONE,
    "dense": Shape(7, 5, 5, batch=3, stride=35),
    "gaps": Shape(7, 5, 8, batch=3, stride=60),
    "tight": Shape(7, 5, 8, batch=3, stride=6 * 8 + 5),
    "beside": Shape(7, 5, 20, batch=3, stride=6),
    "packed": Shape(7, 5, 15, batch=3, stride=5),
    "vector": Shape(1, 11, 11),
    "nothing": Shape(1, 0, 0),
}


def template(name: str, **values: int) -> Template:
    return Template("verify.cu", name, tuple(values.items()))


def reference(problem: Problem) -> Template:
    return templates_of(problem)["reference", ""]


def comparison(problem: Problem) -> Template:
    return templates_of(problem)["compare", ""]


def exact_comparison(problem: Problem) -> Template:
    return templates_of(problem)["compare_exact", ""]


FILL, CHECK = (
    {kind: template(name, TYPE=ELEMENT_TYPES[kind].number) for kind in ALL}
    for name in ("fill", "check")
)
FACTORS = {
    (kind, side): template("fill_exact", TYPE=ELEMENT_TYPES[kind].number, B=side)
    for kind in ALL[:-1]
    for side in (0, 1)
}
FILL_SCALES = [template("fill_scales", B=side) for side in (0, 1)]
SCALED = (
    *(Problem(65, 200, 300, "f8", "nt", scale=scale) for scale in SCALES),
    Problem(65, 200, 300, "f8", "tn", 2, scale="block"),
    *(Problem(13, 11, 40, "f8e5", e5m2=operand) for operand in E5M2_OPERANDS),
    *(Problem(13, 11, 140, "f8", "nn", 2, scale=scale) for scale in ("row", "block")),
    Problem(13, 11, 40, "i8", "nt", 2, scale="row", output="f16"),
    Problem(13, 11, 40, "i8", output="i32"),
)
GATED = (
    Problem(13, 48, 40, "bf16", batch=2, epilogue="swiglu"),
    Problem(13, 48, 40, "f8", "nt", epilogue="swiglu", output="f32", scale="row"),
    Problem(13, 48, 40, "i8", "nt", epilogue="swiglu", output="f16"),
)
FP8_RESULTS = (
    Problem(13, 11, 40, "f8", "nt", scale="row", output="e4m3"),
    Problem(13, 11, 40, "f8", "nt", epilogue="bias_gelu", output="e5m2"),
)
EVERY = (
    *FACTORS.values(),
    *(exact_comparison(Problem(1, 1, 1, epilogue=name)) for name in ELEMENTWISE),
    *(exact_comparison(Problem(1, 1, 1, kind, epilogue="bias_relu")) for kind in TYPES[1:]),
    *(exact_comparison(Problem(1, 1, 1, kind)) for kind in TYPES[1:]),
    *(
        compare(Problem(1, 1, 1, "bf16", epilogue="bias_residual"))
        for compare in (comparison, exact_comparison)
    ),
    *(compare(problem) for problem in GATED for compare in (comparison, exact_comparison)),
    *FILL.values(),
    *CHECK.values(),
    *(reference(Problem(1, 1, 1, layout=layout)) for layout in LAYOUTS),
    *(reference(Problem(1, 1, 1, kind, "nt")) for kind in TYPES[1:]),
    *(comparison(Problem(1, 1, 1, epilogue=name)) for name in ELEMENTWISE),
    *(comparison(Problem(1, 1, 1, kind, epilogue="bias_relu")) for kind in TYPES[1:]),
    *(comparison(Problem(1, 1, 1, kind)) for kind in TYPES[1:]),
    *FILL_SCALES,
    *(reference(problem) for problem in SCALED),
    *(comparison(problem) for problem in SCALED),
    *(exact_comparison(problem) for problem in SCALED),
    *(exact_comparison(problem) for problem in FP8_RESULTS),
    comparison(FP8_RESULTS[0]),
)
TEMPLATES = tuple(dict.fromkeys(EVERY))

# Functions missing from the host's CUDA headers; blocks and threads run one at a time there.
ON_THE_HOST = """#include <cmath>
#include <cstring>
#define cospif(x) static_cast<float>(cos(M_PI * (x)))  // glibc 2.41 declares a function
static long long __double_as_longlong(double x) {
    long long bits;
    std::memcpy(&bits, &x, sizeof bits);
    return bits;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory, host_objects: Path) -> Program:
    sources = tmp_path_factory.mktemp("sources")
    (sources / "verify.cu").write_text(ON_THE_HOST + (CUDA_SRC / "verify.cu").read_text())
    return build(TEMPLATES, host_objects, sources)


def launch(
    kernel: Template,
    shared: int,
    *arguments: str | int | float,
    grid: int = BLOCKS,
    splits: int = 1,
    batch: int = 1,
) -> Launch:
    """A launch; arguments: a name is a pointer, int is i64, float f32, a string of digits i32."""
    return Launch(
        kernel, (grid, splits, batch), (THREADS, 1, 1), shared, tuple(map(argument, arguments))
    )


def argument(value: str | int | float) -> Argument:
    if isinstance(value, float):
        return Argument("f32", value)
    if isinstance(value, int):
        return Argument("i64", value)
    if value.isdigit():
        return Argument("i32", int(value))
    return Argument("pointer", value)


def execute(
    program: Program,
    launches: list[Launch],
    a: Matrix,
    b: Matrix,
    c: Matrix,
    bias: Matrix | None = None,
    scales: tuple[Matrix, Matrix] | None = None,
    residual: Matrix | None = None,
    amax: float | None = None,
) -> Matrix:
    plan = LaunchPlan(Config("verify"), tuple(launches))
    lds = (a.shape[-1], b.shape[-1], c.shape[-1])
    strides = tuple(matrices[0].size if matrices.ndim == 3 else 0 for matrices in (a, b, c))
    case = Case(
        Problem(1, 1, 1),
        plan,
        Alignment(4, 4, 4),
        a,
        b,
        c,
        lds,
        strides=(strides[0], strides[1], strides[2]),
        bias=bias,
        scales=scales,
        residual=residual,
        residual_steps=(residual.shape[-1], residual[0].size) if residual is not None else (0, 0),
        optional={} if amax is None else {"amax": np.array([amax], np.float32)},
    )
    return run(program, [case])[0].reshape(-1)


def doubles(count: int) -> Matrix:
    return np.zeros((1, 2 * count), np.float32)


def memory(shape: Shape) -> Matrix:
    return np.zeros((1, shape.length + 2 * GUARD), BITS[shape.type])


def region(
    where: str, shape: Shape, content: int, seed: int = 7, size: float = 1.0
) -> tuple[str | int | float, ...]:
    return where, GUARD, shape.length, shape.columns, *shape.groups, str(content), seed, size


def filled(
    program: Program, content: int, seed: int = 7, shape: Shape = ONE, size: float = 1.0
) -> Matrix:
    """The bits of a buffer after `fill`."""
    step = launch(FILL[shape.type], 0, *region("c", shape, content, seed, size), "1")
    return execute(program, [step], NOTHING, NOTHING, memory(shape))


def counted(program: Program, *steps: Launch, shape: Shape = ONE) -> float:
    """The count that the last step makes in A."""
    result = execute(program, list(steps), memory(shape), NOTHING, doubles(1))
    return float(result.view(np.float64)[0])


def check(content: int, shape: Shape = ONE, seed: int = 7) -> Launch:
    step = CHECK[shape.type]
    return launch(step, REDUCTION_SHARED, *region("a", shape, content, seed), "c")


def fill(content: int, shape: Shape = ONE, seed: int = 7) -> Launch:
    return launch(FILL[shape.type], 0, *region("a", shape, content, seed), "1")


def elements(shape: Shape) -> NDArray[np.bool_]:
    """The places of a buffer that are in rows, marked row by row."""
    result = np.zeros(shape.length + 2 * GUARD, bool)
    for matrix, row in np.ndindex(shape.batch, shape.rows):
        start = GUARD + matrix * shape.stride + row * shape.leading_dimension
        result[start : start + shape.columns] = True
    return result


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_fill_poisons_guards_and_gaps(program: Program, shape: Shape, kind: str) -> None:
    # Numbers up to 64 are none of the poisons.
    size = 8.0 if kind in ("i8", "e4m3") else 1.0
    bits = filled(program, NORMAL, shape=replace(shape, type=kind), size=size)
    assert ((bits == POISON[kind]) == ~elements(shape)).all()


@pytest.mark.parametrize("kind", ALL)
def test_fill_poisons_everything_without_input(program: Program, kind: str) -> None:
    assert (filled(program, POISONED, shape=replace(ONE, type=kind)) == POISON[kind]).all()


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_fill_writes_zeros_between_poison(program: Program, shape: Shape) -> None:
    bits = filled(program, ZERO, shape=shape)
    assert (bits == np.where(elements(shape), 0, POISON["f32"])).all()


@pytest.mark.parametrize("kind", TYPES)
def test_poison_is_nan(kind: str) -> None:
    poison = np.array([POISON[kind]], BITS[kind])
    assert np.isnan(numbers(poison if kind == "bf16" else poison.view(f"f{poison.itemsize}"))).all()


def test_random_elements_are_normal(program: Program) -> None:
    values = np.sort(filled(program, NORMAL).view(np.float32)[elements(ONE)].astype(np.float64))
    # The Kolmogorov-Smirnov distance to N(0, 1) exceeds 1.95 / sqrt(n) once in 1000.
    law = np.array([(1 + erf(value / 2**0.5)) / 2 for value in values])
    steps = np.arange(len(values) + 1) / len(values)
    distance = max((law - steps[:-1]).max(), (steps[1:] - law).max())
    assert distance < 1.95 / len(values) ** 0.5


@pytest.mark.parametrize("kind", ALL[1:])
@pytest.mark.parametrize("size", [1.0, 30.0, 1e6])
def test_random_elements_are_the_fp32_ones_rounded(
    program: Program, kind: str, size: float
) -> None:
    exact = filled(program, NORMAL, size=size).view(np.float32)[elements(ONE)]
    short = filled(program, NORMAL, shape=replace(ONE, type=kind), size=size)[elements(ONE)]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(short, stored(exact, kind).view(BITS[kind]))


def test_scales_of_normal_numbers_differ_by_a_quarter(program: Program) -> None:
    scales = filled(program, verify_kernels.SCALES, size=0.01).view(np.float32)[elements(ONE)]
    assert (scales.min() < 0.0081, scales.max() > 0.0124) == (True, True)
    assert (scales.min() >= 0.008 * 0.9999, scales.max() <= 0.0125) == (True, True)
    assert len(set(scales)) > 0.99 * len(scales)


def test_seeds_give_different_numbers(program: Program) -> None:
    first, second = (filled(program, NORMAL, seed)[elements(ONE)] for seed in (7, 8))
    assert (first != second).all()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("content", [POISONED, NORMAL, ZERO])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_check_counts_nothing_after_fill(
    program: Program, shape: Shape, content: int, kind: str
) -> None:
    typed = replace(shape, type=kind)
    assert counted(program, fill(content, typed), check(content, typed), shape=typed) == 0


@pytest.mark.parametrize("content", [NORMAL, ZERO])
def test_check_ignores_elements_of_an_output(program: Program, content: int) -> None:
    assert counted(program, fill(content), check(POISONED)) == 0


def test_check_counts_words_changed_in_gaps(program: Program) -> None:
    groups = Shape(ROWS, COLUMNS + 1, LD).groups
    wider = launch(
        FILL["f32"], 0, "a", GUARD, ONE.length, COLUMNS + 1, *groups, str(NORMAL), 7, 1.0, "1"
    )
    # No gap follows the last row.
    assert counted(program, wider, check(POISONED)) == ROWS - 1


@pytest.mark.parametrize("kind", TYPES)
def test_check_counts_changed_elements_and_guards(program: Program, kind: str) -> None:
    shape = replace(ONE, type=kind)
    assert counted(program, check(NORMAL, shape), shape=shape) == shape.length + 2 * GUARD


@pytest.mark.parametrize("kind", TYPES)
def test_check_sees_the_sign_of_a_zero(program: Program, kind: str) -> None:
    shape = Shape(1, 1, 1, type=kind)
    buffer = memory(shape)
    buffer[0, GUARD] = 1 << 8 * buffer.itemsize - 1
    result = execute(program, [check(ZERO, shape)], buffer, NOTHING, doubles(1))
    assert result.view(np.float64)[0] == 1 + 2 * GUARD


@pytest.mark.parametrize("kind", TYPES[1:])
def test_check_sees_the_element_past_an_odd_end(program: Program, kind: str) -> None:
    odd = Shape(1, 7, 7, type=kind)
    longer = launch(FILL[kind], 0, "a", GUARD, 8, 8, 8, 1, 8, str(NORMAL), 7, 1.0, "1")
    # The longer fill puts an element where the guard of the shorter one begins.
    assert (
        counted(
            program, fill(NORMAL, odd), longer, check(NORMAL, odd), shape=Shape(1, 8, 8, type=kind)
        )
        == 1
    )


def test_check_counts_elements_that_are_not_zero(program: Program) -> None:
    vector = SHAPES["vector"]
    steps = fill(NORMAL, vector), check(ZERO, vector)
    assert counted(program, *steps, shape=vector) == vector.columns


@pytest.mark.parametrize(("ld", "stride"), [(5, 34), (8, 52), (20, 4), (14, 5)])
def test_overlapping_matrices_are_refused(ld: int, stride: int) -> None:
    with pytest.raises(RunnerError, match="overlap"):
        Shape(7, 5, ld, batch=3, stride=stride)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("shape", "batch"), [((1, 1, 1), 1), ((65, 63, 33), 1), ((70, 130, 47), 1), ((9, 66, 40), 3)]
)
def test_reference_equals_the_float64_matmul(
    program: Program, shape: tuple[int, int, int], batch: int, layout: str
) -> None:
    check_reference(program, Problem(*shape, layout=layout, batch=batch))


@pytest.mark.parametrize("kind", TYPES[1:])
def test_reference_reads_16_bit_operands(program: Program, kind: str) -> None:
    check_reference(program, Problem(65, 63, 33, kind, "nt"))


def check_reference(program: Program, problem: Problem) -> None:
    m, n, k, batch, layout = problem.m, problem.n, problem.k, problem.batch, problem.layout
    rng = np.random.default_rng(1)
    sizes = (m, k) if layout[0] == "n" else (k, m), (k, n) if layout[1] == "n" else (n, k)
    a, b = (
        stored(4 * rng.standard_normal((batch, *size), dtype=np.float32), kind)
        for size, kind in zip(sizes, problem.operand_types, strict=True)
    )
    scales = random_scales(problem)
    tiles, chunk = ceil_div(m, 64) * ceil_div(n, 64), 16
    step = launch(
        reference(problem),
        REFERENCE_SHARED,
        *("a", a.shape[-1], "b", b.shape[-1], "scale_a", "scale_b", "c"),
        *(str(m), str(n), str(k), chunk, m * k, k * n),
        grid=tiles,
        splits=ceil_div(k, chunk),
        batch=batch,
    )
    c = doubles(batch * m * n)
    result = execute(program, [step], a, b, c, scales=scales).view(np.float64)
    left, right = (
        numbers(matrix, kind) for matrix, kind in zip((a, b), problem.operand_types, strict=True)
    )
    expected = product(problem, left, right, scales=scales)
    np.testing.assert_allclose(result.reshape(expected.shape), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("problem", SCALED, ids=str)
def test_reference_scales_operands_of_8_bits(program: Program, problem: Problem) -> None:
    check_reference(program, problem)


@pytest.mark.parametrize(
    "problem", [problem for problem in SCALED if problem.scale_shapes], ids=str
)
@pytest.mark.parametrize("side", [0, 1])
def test_scales_of_an_exact_product_are_the_same_along_k(
    program: Program, problem: Problem, side: int
) -> None:
    scales = OperandScales.of(problem, side)
    step = launch(FILL_SCALES[side], 0, "c", scales.count, scales.blocks, scales.batch, 5)
    filled = execute(program, [step], NOTHING, NOTHING, np.zeros((1, scales.vector.length), "f4"))
    assert problem.scale_shapes is not None
    along_k = filled.reshape(problem.scale_shapes[side])
    if problem.scale == "block":
        along_k = along_k.swapaxes(1, 2) if side == 0 else along_k
        assert (along_k == along_k[..., :1]).all()
    assert {*along_k.reshape(-1)} <= {0.5, 1.0}
    if along_k.size > 20:
        assert {*along_k.reshape(-1)} == {0.5, 1.0}


def test_reference_reads_a_shared_operand(program: Program) -> None:
    rng = np.random.default_rng(1)
    a = rng.standard_normal((5, 20), dtype=np.float32)
    b = rng.standard_normal((3, 20, 7), dtype=np.float32)
    step = launch(
        reference(Problem(5, 7, 20)),
        REFERENCE_SHARED,
        *("a", 20, "b", 7, "scale_a", "scale_b", "c", "5", "7", "20", 32, 0, 140),
        grid=1,
        batch=3,
    )
    result = execute(program, [step], a, b, doubles(3 * 35)).view(np.float64)
    expected = product(Problem(5, 7, 20, batch=3), a, b)
    np.testing.assert_allclose(result.reshape(3, 5, 7), expected, rtol=1e-13, atol=1e-13)


def verdict(
    program: Program,
    c: Matrix,
    expected: NDArray[np.float64],
    tolerance: float,
    epilogue: str = "none",
    bias: Matrix | None = None,
    kind: str = "f32",
    residual: Matrix | None = None,
) -> Matrix:
    """Largest error, number of elements beyond the tolerance, sum of squared differences, sum of
    squared expected values. The kernel expects twice `expected`, before the epilogue."""
    *batch, m, n = c.shape
    sizes = n, m * n, str(m), str(n), str(batch[0] if batch else 1)
    problem = Problem(m, n, 1, kind, epilogue=epilogue)
    step = launch(
        comparison(problem),
        REDUCTION_SHARED,
        *("a", "b", *sizes, 2.0, 0.0, "bias", "residual", n + 3, m * (n + 3) + 1, 1.0),
        *(0, problem.output_element.roundoff, tolerance, "c"),
    )
    doubles_as_floats = np.ascontiguousarray(expected).reshape(1, -1).view(np.float32)
    outcome = execute(program, [step], doubles_as_floats, c, doubles(4), bias, residual=residual)
    result: Matrix = outcome.view(np.float64)
    return result


def test_compare_measures_the_difference(program: Program) -> None:
    expected = np.random.default_rng(2).standard_normal((37, 41))
    c = (2 * expected).astype(np.float32)
    c[3, 4] += 1
    c[20, 40] -= 2
    difference = c - 2 * expected
    verdicts = [np.abs(difference).max(), 2, (difference**2).sum(), 4 * (expected**2).sum()]
    np.testing.assert_allclose(verdict(program, c, expected, 0.5), verdicts, rtol=1e-12)


def test_compare_covers_every_matrix_of_a_batch(program: Program) -> None:
    expected = np.random.default_rng(2).standard_normal((4, 13, 11))
    c = (2 * expected).astype(np.float32)
    c[3, 12, 10] += 1
    c[0, 0, 0] -= 2
    assert verdict(program, c, expected, 0.5)[:2].tolist() == pytest.approx([2, 2], rel=1e-6)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_compare_applies_the_epilogue(program: Program, name: str) -> None:
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((2, *size), dtype=np.float32) for size in ((13, 1), (1, 11)))
    bias = rng.standard_normal(11, dtype=np.float32)
    problem = Problem(13, 11, 1, batch=2, epilogue=name)
    c = product(problem, a, b, bias=bias, alpha=2.0).astype(np.float32)
    result = verdict(program, c, a.astype(np.float64) @ b, 1e-6, name, bias)
    assert (result[0] < 1e-6, result[1]) == (True, 0)


def test_compare_adds_the_residual(program: Program) -> None:
    rng = np.random.default_rng(3)
    expected, bias = rng.standard_normal((2, 13, 11)), stored(rng.standard_normal(11, "f4"), "bf16")
    memory = stored(rng.standard_normal((2, 13 * 14 + 1), "f4"), "bf16")
    residual = memory[:, :-1].reshape(2, 13, 14)
    exact = 2 * expected + numbers(bias) + numbers(residual)[..., :11]
    c = stored(exact.astype(np.float32), "bf16")
    arguments = "bias_residual", bias, "bf16", memory
    assert verdict(program, c, expected, 1e-6, *arguments)[:2].tolist() == pytest.approx(
        [0, 0], abs=1e-6
    )
    c[1, 12, 10] += 8
    assert verdict(program, c, expected, 1e-6, *arguments)[1] == 1


@pytest.mark.parametrize("batch", [1, 2])
def test_compare_judges_gates_by_their_size(program: Program, batch: int) -> None:
    rng = np.random.default_rng(3)
    sums, allowed = 40 * rng.standard_normal((batch, 13, 48)), 1e-3
    gate, up = gates(sums)
    exact_c = activated(gate, "silu") * up
    unit = error_unit(sums, allowed)
    step = launch(
        comparison(GATED[0]),
        REDUCTION_SHARED,
        *("a", "b", 24, 13 * 24, "13", "48", str(batch), 1.0, 0.0, "bias", "residual", 0, 0, 1.0),
        *(0, GATED[0].output_element.roundoff, allowed, "c"),
    )

    def compared(values: NDArray[np.float64]) -> Matrix:
        c = stored(values.astype(np.float32), "bf16")
        floats = np.ascontiguousarray(sums).reshape(1, -1).view(np.float32)
        result: Matrix = execute(program, [step], floats, c, doubles(4)).view(np.float64)
        return result

    largest, wrong, _, squares = compared(exact_c)
    assert (largest < 1e-6, wrong) == (True, 0)
    assert squares == pytest.approx((exact_c**2).sum())
    slightly, badly = exact_c.copy(), exact_c.copy()
    slightly[-1, 12, 23] += 0.5 * allowed * unit[-1, 12, 23]
    badly[0, 3, 9] += (2 * allowed + 4 * GATED[0].output_element.roundoff) * unit[0, 3, 9] * 40
    assert compared(slightly)[1] == 0
    assert compared(badly)[1] == 1


@pytest.mark.parametrize("kind", TYPES[1:])
def test_compare_allows_one_rounding_to_16_bits(program: Program, kind: str) -> None:
    rng = np.random.default_rng(3)
    expected, bias = rng.standard_normal((37, 41)), stored(rng.standard_normal(41, "f4"), kind)
    problem = Problem(37, 41, 1, kind, epilogue="bias_relu")
    exact = np.maximum(2 * expected + numbers(bias), 0)
    c = stored(exact.astype(np.float32), kind)
    c[20, 40] = stored(np.array(exact[20, 40] + 1, np.float32).reshape(1), kind)[0]
    result = verdict(program, c, expected, 0.5, "bias_relu", bias, kind)
    differences = numbers(c) - exact
    expected_verdicts = [
        largest_error(problem, numbers(c), exact),
        1,
        (differences**2).sum(),
        (exact**2).sum(),
    ]
    assert result[0] == pytest.approx(1, abs=0.05)
    np.testing.assert_allclose(result, expected_verdicts, rtol=1e-6)


@pytest.mark.parametrize("kind", TYPES[1:])
def test_compare_finds_no_error_in_a_correct_rounding(program: Program, kind: str) -> None:
    expected = np.random.default_rng(3).standard_normal((37, 41))
    c = stored((2 * expected).astype(np.float32), kind)
    assert verdict(program, c, expected, 1e-6, kind=kind)[:2].tolist() == pytest.approx(
        [0, 0], abs=1e-6
    )


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf])
def test_compare_rejects_nan_and_infinity(program: Program, bad: float) -> None:
    expected = np.ones((5, 7))
    c = np.full((5, 7), 2, np.float32)
    c[4, 6] = bad
    largest, wrong, *_ = verdict(program, c, expected, 1e30)
    assert (not largest <= 1e30, wrong) == (True, 1)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_no_epilogue_hides_nan(program: Program, name: str) -> None:
    c = np.full((5, 7), np.nan, np.float32)
    result = verdict(program, c, -np.ones((5, 7)), 1e30, name, np.zeros(7, np.float32))
    assert (np.isnan(result[0]), result[1]) == (True, 35)


@pytest.mark.parametrize("kind", TYPES)
def test_compare_reproduces_the_old_c(program: Program, kind: str) -> None:
    m, n, batch = 30, 20, 2
    shape = Shape(m, n, n, batch, m * n, kind)
    sizes = n, m * n, str(m), str(n), str(batch)
    steps = [
        launch(FILL[kind], 0, "b", 0, shape.length, n, *shape.groups, str(NORMAL), 9, 1.0, "1"),
        launch(
            comparison(Problem(m, n, 1, kind)),
            REDUCTION_SHARED,
            *("a", "b", *sizes, 1.0, 1.0, "bias", "residual", 0, 0, 1.0, 9, 0.0, 0.0, "c"),
        ),
    ]
    zeros = np.zeros((1, batch * m * n), BITS[kind])
    result = execute(program, steps, doubles(batch * m * n), zeros, doubles(4)).view(np.float64)
    assert (result[:3].tolist(), result[3] > 0) == ([0.0, 0.0, 0.0], True)


@pytest.mark.parametrize("kind", TYPES)
def test_refill_leaves_guards_and_gaps(program: Program, kind: str) -> None:
    shape = replace(ONE, type=kind)
    step = launch(FILL[kind], 0, *region("c", shape, NORMAL), "0")
    bits = execute(program, [step], NOTHING, NOTHING, memory(shape))
    assert (bits == np.where(elements(shape), filled(program, NORMAL, shape=shape), 0)).all()


@pytest.mark.parametrize("content", [RAISED, LOWERED, EVEN])
def test_integers_of_c_and_bias_equal_those_of_numpy(program: Program, content: int) -> None:
    numbers = filled(program, content).view(np.float32)[elements(ONE)]
    places = np.flatnonzero(elements(ONE)) - GUARD
    expected = exact.even(7, places) if content == EVEN else exact.raised(7, places)
    np.testing.assert_array_equal(numbers, -expected if content == LOWERED else expected)


SIDES = {
    "one": Shape(ROWS, COLUMNS, LD),
    "batch": Shape(7, 5, 8, batch=3, stride=60),
    "beside": Shape(7, 5, 20, batch=3, stride=6),
}


@pytest.mark.parametrize("kind", ALL[:-1])
@pytest.mark.parametrize("down", [False, True])
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("shape", SIDES.values(), ids=SIDES)
def test_factors_equal_those_of_numpy(
    program: Program, shape: Shape, side: int, down: bool, kind: str
) -> None:
    typed = replace(shape, type=kind)
    k, outer = (shape.rows, shape.columns) if down else (shape.columns, shape.rows)
    pairing = exact.Pairing.draw(k, Random(k), 2 if kind == "e4m3" else 8)
    sizes = (typed.length, typed.columns, *typed.groups)
    flags = (str(int(typed.side_by_side)), str(int(down)))
    step = launch(
        FACTORS[kind, side],
        0,
        *("c", GUARD, *sizes, *flags, typed.rows),
        *(*astuple(pairing), 11),
    )
    bits = execute(program, [step], NOTHING, NOTHING, memory(typed))
    factors = exact.factors(side, np.arange(shape.batch * outer), k, 11, pairing)
    matrices = factors.reshape(shape.batch, outer, k)
    for matrix, values in enumerate(matrices):
        wanted = stored(np.ascontiguousarray(values.T if down else values), kind)
        for row, line in enumerate(wanted.view(BITS[kind])):
            start = GUARD + matrix * shape.stride + row * shape.leading_dimension
            np.testing.assert_array_equal(bits[start : start + shape.columns], line)
    assert not bits[~elements(typed)].any()


def exact_verdict(
    program: Program,
    problem: Problem,
    beta: float = -1.0,
    *,
    damage: Callable[[NDArray[np.float64]], None] = lambda _: None,
    special: exact.Special | None = None,
    any_special: bool = False,
) -> Matrix:
    """The findings of `compare_exact` in a C that NumPy computed and `damage` changed."""
    m, n, batch = problem.m, problem.n, problem.batch
    draw = exact.Draw(1, 2, 3, 4, exact.Pairing.draw(problem.k, Random(5)), residual=6)
    scales = exact_scales(problem, special)
    scale_c = exact.RESULT_SCALE if problem.has_fp8_output else 1.0
    alpha = 2.0 if problem.has_factors else 1.0
    beta = beta if problem.has_factors else 0.0
    left, right = (
        exact.factors(side, np.arange(batch * size), problem.k, seed, draw.pairing)
        .astype(np.float64)
        .reshape(batch, size, -1)
        for side, (size, seed) in enumerate(((m, draw.a), (n, draw.b)))
    )
    if special and special.row is not None and not special.scale:
        left[0, special.row, draw.pairing.first] = special.value
    if special and special.column is not None and not special.scale:
        right[0, special.column, draw.pairing.first] = special.value
    before = np.zeros((batch, m, n))
    if beta:
        before = exact.raised(draw.c, np.arange(batch * m * n)).astype(np.float64)
    bias = exact.even(draw.bias, np.arange(n))
    places = np.arange(batch)[:, None, None] * (m * (n + 3) + 1)
    places = places + np.arange(m)[:, None] * (n + 3) + np.arange(n)
    added = exact.even(draw.residual, places) if problem.has_residual else None
    with np.errstate(invalid="ignore"):
        c = product(
            replace(problem, layout="nn"),
            left,
            right.swapaxes(1, 2),
            np.sign(beta) * before.reshape(batch, m, n),
            bias,
            alpha=alpha,
            beta=beta,
            scales=scales,
            residual=added,
        )
    damage(c)
    spot = exact.Special(0.0) if special is None or special.scale else special
    row, column = (-1 if at is None else at for at in (spot.row, spot.column))
    step = launch(
        exact_comparison(problem),
        REDUCTION_SHARED,
        *("a", problem.width, m * problem.width, str(m), str(n)),
        *[str(batch)] * 3,
        *(alpha, beta, draw.a, draw.b, draw.c, draw.bias),
        *(draw.pairing.first, draw.pairing.terms, row, column),
        *(spot.value, str(int(any_special)), exact.tolerance(problem, special)),
        *(exact.slack(problem, special), "scale_a", "scale_b", str(problem.k)),
        *(draw.residual, n + 3, m * (n + 3) + 1, scale_c, "amax", "c"),
    )
    amax = float(np.nanmax(np.abs(c))) if problem.has_fp8_output else None
    with np.errstate(over="ignore"):
        short = stored((scale_c * c).astype(np.float32), problem.output_type)
    outcome = execute(program, [step], short, NOTHING, doubles(4), scales=scales, amax=amax)
    result: Matrix = outcome.view(np.float64)
    return result


def exact_scales(problem: Problem, special: exact.Special | None) -> tuple[Matrix, Matrix] | None:
    """Scales of an exact product, 1 or 1/2 and the same all along K, and the special one."""
    if problem.scale_shapes is None:
        return None
    random = np.random.default_rng(3)
    scales = [random.choice([0.5, 1.0], shape).astype("f4") for shape in problem.scale_shapes]
    if problem.scale == "block":
        scales = [scales[0][:, :1] + 0 * scales[0], scales[1][..., :1] + 0 * scales[1]]
    if special and special.scale:
        if special.row is not None:
            scales[0][0, ..., special.row] = special.value
        elif problem.scale == "block":
            scales[1][0, (special.column or 0) // 128] = special.value
        else:
            scales[1][0, special.column or 0] = special.value
    return scales[0], scales[1]


EXACT = (
    *FP8_RESULTS,
    *(problem for problem in SCALED if problem.layout == "nt" or problem.precision.eight_bit),
    *(Problem(13, 11, 40, epilogue=name) for name in ELEMENTWISE),
    *(Problem(13, 11, 40, kind, epilogue="bias_relu") for kind in TYPES[1:]),
    Problem(13, 11, 40, "bf16", batch=2, epilogue="bias_residual"),
    Problem(7, 5, 33, batch=3),
    *(Problem(7, 5, k) for k in (1, 2, 3, 4, 5)),
)


UNROUNDED = tuple(problem for problem in EXACT if not problem.has_fp8_output)


@pytest.mark.parametrize("problem", EXACT, ids=str)
@pytest.mark.parametrize("beta", [-1.0, 1.0])
def test_exact_product_is_right_bit_for_bit(
    program: Program, problem: Problem, beta: float
) -> None:
    assert exact_verdict(program, problem, beta)[1] == 0


@pytest.mark.parametrize("problem", FP8_RESULTS, ids=str)
def test_largest_size_of_an_fp8_result_is_found(program: Program, problem: Problem) -> None:
    _, _, expected, found = exact_verdict(program, problem)
    assert 0 < expected == pytest.approx(found, rel=AMAX_ERROR)


def test_fp8_result_is_compared_without_its_scale(program: Program) -> None:
    expected = np.random.default_rng(2).standard_normal((13, 16))
    c = stored((4 * expected).astype(np.float32), "e4m3")
    step = launch(
        comparison(FP8_RESULTS[0]),
        REDUCTION_SHARED,
        *("a", "b", 16, 0, "13", "16", "1", 1.0, 0.0, "bias", "residual", 0, 0, 4.0),
        *(0, 2.0**-4, 2.0**-12, "c"),
    )
    doubled = np.ascontiguousarray(expected).reshape(1, -1).view(np.float32)
    assert execute(program, [step], doubled, c, doubles(4)).view(np.float64)[1] == 0
    c[3, 4] ^= 0x80
    assert execute(program, [step], doubled, c, doubles(4)).view(np.float64)[1] == 1


@pytest.mark.parametrize("problem", FP8_RESULTS, ids=str)
def test_a_wrong_fp8_result_is_seen(program: Program, problem: Problem) -> None:
    def change(c: NDArray[np.float64]) -> None:
        c[np.unravel_index(c.argmax(), c.shape)] *= 0.75  # a term may vanish in the rounding

    assert exact_verdict(program, problem, damage=change)[1] == 1


@pytest.mark.parametrize("problem", UNROUNDED, ids=str)
def test_one_missing_term_is_seen(program: Program, problem: Problem) -> None:
    def drop(c: NDArray[np.float64]) -> None:
        # Alpha times the smallest product, with the smallest scales.
        c.reshape(-1)[-1] -= 2 if problem.scale == "none" and problem.has_factors else 0.5

    if problem.output == "i32":
        return  # half a term is no integer
    assert exact_verdict(program, problem, damage=drop)[1] == 1


@pytest.mark.parametrize("problem", UNROUNDED, ids=str)
def test_zeros_are_wrong_everywhere(program: Program, problem: Problem) -> None:
    def clear(c: NDArray[np.float64]) -> None:
        c[:] = 0

    wrong = exact_verdict(program, problem, damage=clear)[1]
    assert wrong == problem.batch * problem.m * problem.n


@pytest.mark.parametrize("problem", GATED, ids=str)
def test_exact_gates_are_right_and_a_missing_term_is_seen(
    program: Program, problem: Problem
) -> None:
    assert exact_verdict(program, problem)[1] == 0

    def drop(c: NDArray[np.float64]) -> None:
        place = np.unravel_index(c.argmax(), c.shape)
        c[place] *= 1 - 1 / 32  # a term is at least a thirtieth of a sum

    assert exact_verdict(program, problem, damage=drop)[1] == 1


@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0**-130])
@pytest.mark.parametrize("where", ["row", "column"])
def test_special_value_reaches_its_gates(program: Program, value: float, where: str) -> None:
    for number in (4, 12):
        special = placed(value, where, number)
        assert exact_verdict(program, GATED[0], special=special)[1] == 0
    assert exact_verdict(program, GATED[0])[1] == 0


@pytest.mark.parametrize("value", exact.EXTREME_SCALES)
@pytest.mark.parametrize("where", ["row", "column"])
def test_extreme_scale_reaches_its_gates(program: Program, value: float, where: str) -> None:
    for number in (4, 12):
        special = replace(placed(value, where, number), scale=True)
        assert exact_verdict(program, GATED[1], special=special)[1] == 0


def placed(value: float, where: str, number: int) -> exact.Special:
    """A special value in a row of A or a column of B."""
    row, column = (number, None) if where == "row" else (None, number)
    return exact.Special(value, row, column)


SCALE_CASES = [
    (problem, replace(placed(value, where, 4), scale=True))
    for problem in SCALED
    if problem.scale in ("row", "block")
    for value in exact.EXTREME_SCALES
    for where in ("row", "column")
]


@pytest.mark.parametrize(("problem", "special"), SCALE_CASES, ids=str)
def test_extreme_scale_reaches_its_row_or_column(
    program: Program, problem: Problem, special: exact.Special
) -> None:
    assert exact_verdict(program, problem, special=special)[1] == 0
    assert exact_verdict(program, problem)[1] == 0

    def forget(c: NDArray[np.float64]) -> None:
        rows = slice(4, 5) if special.row is not None else slice(None)
        c[0, rows, 4] = 3.0

    assert exact_verdict(program, problem, special=special, damage=forget)[1] > 0


@pytest.mark.parametrize("value", [127.0, -128.0])
def test_extreme_integer_reaches_its_row(program: Program, value: float) -> None:
    for problem in SCALED[-2:]:
        special = exact.Special(value, row=4)
        assert exact_verdict(program, problem, special=special)[1] == 0


@pytest.mark.parametrize("value", [np.inf, np.nan, 2.0**-130])
@pytest.mark.parametrize("where", ["row", "column"])
def test_special_value_reaches_its_row_or_column(
    program: Program, value: float, where: str
) -> None:
    special = placed(value, where, 4)
    problem = Problem(13, 11, 40, batch=2)
    assert exact_verdict(program, problem, special=special)[1] == 0
    if value != value:
        elsewhere = placed(value, where, 5)

        def spread(c: NDArray[np.float64]) -> None:
            c[1, 0, 0] = np.nan

        assert exact_verdict(program, problem, special=elsewhere, damage=spread)[1] == 1


@pytest.mark.parametrize("epilogue", ["none", "relu", "gelu"])
def test_nan_for_an_infinity_is_wrong_unless_allowed(program: Program, epilogue: str) -> None:
    def lose(c: NDArray[np.float64]) -> None:
        c.reshape(13, 11)[3] = np.nan

    special = exact.Special(np.inf, row=3)
    problem = Problem(13, 11, 40, epilogue=epilogue)
    wrong = [
        exact_verdict(program, problem, special=special, damage=lose, any_special=allowed)[1]
        for allowed in (False, True)
    ]
    assert wrong == [11, 0]


COMPILED = (
    *(f"{kind}:bias_gelu" for kind in TYPES),
    *("f8:scale=block", "f8e5:scale=row:out=f16", "i8:out=i32"),
)
ARCHS = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
# All kinds for two architectures, every third of them for each other one.
COMPILATIONS = [
    (text, arch)
    for place, arch in enumerate(ARCHS)
    for text in (COMPILED if arch in ("sm_75", "sm_90") else COMPILED[place % 3 :: 3])
]


@pytest.mark.parametrize(("text", "arch"), COMPILATIONS)
def test_verification_kernels_compile(text: str, arch: str) -> None:
    problem = Problem.parse(f"1x1x1:{text}")
    programs = [compiled(kernel, arch) for kernel in templates_of(problem).values()]
    assert {type(program) for program in programs} == {CudaProgram}


@cache
def compiled(kernel: Template, arch: str) -> CudaProgram | CompileFailure:
    """The program of a kernel, which several problems may share."""
    return compiler.compile(kernel, arch, cache=None)
