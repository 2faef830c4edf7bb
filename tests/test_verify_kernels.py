"""The verification kernels: on the CPU against numpy, and compiled for every architecture."""

from __future__ import annotations

from math import erf
from pathlib import Path

import numpy as np
import pytest
from host_cuda import CUDA_SRC, Case, Matrix, Program, build, run
from numpy.typing import NDArray

from autotune import compiler
from autotune.config import Config
from autotune.gpu.verify import REDUCTION_SHARED, REFERENCE_SHARED, THREADS
from autotune.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.problem import LAYOUTS, Problem
from autotune.reference import product

GUARD, ROWS, COLUMNS, LD = 16, 40, 50, 64
WORDS = (ROWS - 1) * LD + COLUMNS
TOTAL = WORDS + 2 * GUARD
POISON = 0x7FFFDEAD
BLOCKS = 3
NOTHING = np.zeros((1, 4), np.float32)


def template(name: str, **values: int) -> Template:
    return Template("verify.cu", name, tuple(values.items()))


FILL = [template("fill", RANDOM=i) for i in (0, 1)]
CHECK = [template("check", FIXED=i) for i in (0, 1)]
REFERENCE = {
    layout: template("reference", TRANS_A=int(layout[0] == "t"), TRANS_B=int(layout[1] == "t"))
    for layout in LAYOUTS
}
COMPARE = template("compare")
TEMPLATES = (*FILL, *CHECK, *REFERENCE.values(), COMPARE)


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    sources = tmp_path_factory.mktemp("sources")
    mathematics = "#include <cmath>\nstatic float cospif(float x) { return cos(M_PI * x); }\n"
    (sources / "verify.cu").write_text(mathematics + (CUDA_SRC / "verify.cu").read_text())
    return build(TEMPLATES, Path(tmp_path_factory.getbasetemp(), "host"), sources)


def launch(
    kernel: Template,
    shared: int,
    *arguments: str | int | float,
    grid: int = BLOCKS,
    splits: int = 1,
) -> Launch:
    """Names are pointers, numbers i64 or f32, and digits as text i32."""
    return Launch(
        kernel, (grid, splits, 1), (THREADS, 1, 1), shared, tuple(map(argument, arguments))
    )


def argument(value: str | int | float) -> Argument:
    if isinstance(value, float):
        return Argument("f32", value)
    if isinstance(value, int):
        return Argument("i64", value)
    if value.isdigit():
        return Argument("i32", int(value))
    return Argument("pointer", value)


def execute(program: Program, launches: list[Launch], a: Matrix, b: Matrix, c: Matrix) -> Matrix:
    plan = LaunchPlan(Problem(1, 1, 1), Config("verify"), Alignment(4, 4, 4), tuple(launches))
    lds = (a.shape[1], b.shape[1], c.shape[1])
    return run(program, [Case(plan, a, b, c, lds)])[0].reshape(-1)


def doubles(count: int) -> Matrix:
    return np.zeros((1, 2 * count), np.float32)


def region(where: str, columns: int = COLUMNS, seed: int = 7) -> tuple[str | int, ...]:
    return where, GUARD, WORDS, columns, LD, seed


def filled(program: Program, random: int, seed: int = 7) -> Matrix:
    step = launch(FILL[random], 0, *region("c", seed=seed))
    return execute(program, [step], NOTHING, NOTHING, np.zeros((1, TOTAL), np.float32))


def is_element() -> NDArray[np.bool_]:
    place = np.arange(TOTAL) - GUARD
    return (place >= 0) & (place < WORDS) & (place % LD < COLUMNS)


def test_fill_poisons_guards_and_gaps(program: Program) -> None:
    words = filled(program, random=1).view(np.uint32)
    assert ((words == POISON) == ~is_element()).all()


def test_fill_poisons_everything_without_random_elements(program: Program) -> None:
    assert (filled(program, random=0).view(np.uint32) == POISON).all()


def test_poison_is_nan() -> None:
    assert np.isnan(np.array([POISON], np.uint32).view(np.float32)).all()


def test_random_elements_are_normal(program: Program) -> None:
    values = np.sort(filled(program, random=1)[is_element()].astype(np.float64))
    # Kolmogorov and Smirnov's distance to N(0, 1); 1.95 / sqrt(n) is exceeded once in 1000.
    law = np.array([(1 + erf(value / 2**0.5)) / 2 for value in values])
    steps = np.arange(len(values) + 1) / len(values)
    distance = max((law - steps[:-1]).max(), (steps[1:] - law).max())
    assert distance < 1.95 / len(values) ** 0.5


def test_seeds_give_different_numbers(program: Program) -> None:
    first, second = (filled(program, 1, seed)[is_element()] for seed in (7, 8))
    assert (first != second).all()


@pytest.mark.parametrize("fixed", [0, 1])
def test_check_finds_nothing_after_fill(program: Program, fixed: int) -> None:
    steps = [
        launch(FILL[1], 0, *region("a")),
        launch(CHECK[fixed], REDUCTION_SHARED, *region("a"), "c"),
    ]
    counts = execute(program, steps, np.zeros((1, TOTAL), np.float32), NOTHING, doubles(BLOCKS))
    assert counts.view(np.float64).tolist() == [0.0] * BLOCKS


def test_check_counts_words_changed_in_gaps(program: Program) -> None:
    steps = [
        launch(FILL[1], 0, *region("a", columns=COLUMNS + 1)),
        launch(CHECK[0], REDUCTION_SHARED, *region("a"), "c"),
    ]
    counts = execute(program, steps, np.zeros((1, TOTAL), np.float32), NOTHING, doubles(BLOCKS))
    assert counts.view(np.float64).sum() == ROWS - 1  # the last row has no gap behind it


def test_check_counts_changed_elements_and_guards(program: Program) -> None:
    step = launch(CHECK[1], REDUCTION_SHARED, *region("a"), "c")
    zeros = np.zeros((1, TOTAL), np.float32)
    counts = execute(program, [step], zeros, NOTHING, doubles(BLOCKS))
    assert counts.view(np.float64).sum() == TOTAL


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", [(1, 1, 1), (65, 63, 33), (70, 130, 47)])
def test_reference_is_the_float64_product(
    program: Program, shape: tuple[int, int, int], layout: str
) -> None:
    problem = Problem(*shape, layout=layout)
    m, n, k = shape
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(size, dtype=np.float32) for size in ((m, k), (k, n)))
    a = a if layout[0] == "n" else np.ascontiguousarray(a.T)
    b = b if layout[1] == "n" else np.ascontiguousarray(b.T)
    tiles, chunk = -(-m // 64) * -(-n // 64), 16
    step = launch(
        REFERENCE[layout],
        REFERENCE_SHARED,
        *("a", a.shape[1], "b", b.shape[1], "c", str(m), str(n), str(k), chunk),
        grid=tiles,
        splits=-(-k // chunk),
    )
    result = execute(program, [step], a, b, doubles(m * n)).view(np.float64)
    np.testing.assert_allclose(result.reshape(m, n), product(problem, a, b), rtol=1e-13, atol=1e-13)


def verdict(program: Program, c: Matrix, expected: NDArray[np.float64], tolerance: float) -> Matrix:
    """Largest difference, elements beyond tolerance, squares of the difference and of alpha E."""
    step = launch(
        COMPARE,
        REDUCTION_SHARED,
        *("a", "b", c.shape[1], str(c.shape[0]), str(c.shape[1]), 2.0, 0.0, 0, tolerance, "c"),
    )
    flat = expected.reshape(1, -1).view(np.float32)
    blocks = execute(program, [step], flat, c, doubles(4 * BLOCKS)).view(np.float64)
    parts = blocks.reshape(BLOCKS, 4)
    result: Matrix = np.concatenate([[parts[:, 0].max()], parts[:, 1:].sum(axis=0)])
    return result


def test_compare_measures_the_difference(program: Program) -> None:
    expected = np.random.default_rng(2).standard_normal((37, 41))
    c = (2 * expected).astype(np.float32)
    c[3, 4] += 1
    c[20, 40] -= 2
    difference = c - 2 * expected
    wanted = [np.abs(difference).max(), 2, (difference**2).sum(), 4 * (expected**2).sum()]
    np.testing.assert_allclose(verdict(program, c, expected, 0.5), wanted, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_compare_lets_no_bad_number_pass(program: Program, bad: float) -> None:
    expected = np.ones((5, 7))
    c = np.full((5, 7), 2, np.float32)
    c[4, 6] = bad
    largest, wrong, *_ = verdict(program, c, expected, 1e30)
    assert (not largest <= 1e30, wrong) == (True, 1)


def test_compare_knows_what_c_was(program: Program) -> None:
    m, n = 30, 20
    steps = [
        launch(FILL[1], 0, "b", 0, m * n, n, n, 9),
        launch(COMPARE, REDUCTION_SHARED, "a", "b", n, str(m), str(n), 1.0, 1.0, 9, 0.0, "c"),
    ]
    zeros = np.zeros((1, m * n), np.float32)
    parts = execute(program, steps, doubles(m * n), zeros, doubles(4 * BLOCKS)).view(np.float64)
    assert parts.reshape(BLOCKS, 4)[:, :2].tolist() == [[0.0, 0.0]] * BLOCKS


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120"])
def test_compiles(arch: str) -> None:
    kernels = (CHECK[1], REFERENCE["nn"], COMPARE)
    programs = [compiler.compile(kernel, arch, cache=None) for kernel in kernels]
    assert {type(program) for program in programs} == {compiler.Program}
