"""The mma kernel with 8-bit operands on the CPU, under AddressSanitizer and UBSan, against numpy in
float64 of the same operands and scales; int32 results are exact."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.host_cases import Case, case_of
from support.host_cuda import Program, build, check, run

from autotune.families.config import Config
from autotune.families.shared.packing import must_transpose
from autotune.problem import LAYOUTS, Problem

# Slices, one and two sets of fragments, split-K, direct and staged stores. In place of `compute`,
# `pack` and `promote` each problem has its own.
SQUARE = (
    "swap=0,bm=64,bn=64,wm=32,wn=32,slices=1,bk=64,copy=async,stages=3,split_k=1,min_blocks=1,"
    "store=staged,group=4"
)
SLICED = (
    "swap=0,bm=32,bn=32,wm=16,wn=16,slices=2,bk=256,copy=async,stages=2,split_k=1,min_blocks=1,"
    "store=direct,group=1"
)
SPLIT = (
    "swap=0,bm=16,bn=64,wm=16,wn=16,slices=2,bk=128,copy=async,stages=4,split_k=3,min_blocks=2,"
    "store=direct,group=1"
)
NARROW = (
    "swap=1,bm=64,bn=8,wm=32,wn=8,slices=2,bk=128,copy=async,stages=3,split_k=2,min_blocks=1,"
    "store=direct,group=1"
)
THIN = (
    "swap=0,bm=32,bn=32,wm=16,wn=8,slices=1,bk=64,copy=async,stages=3,split_k=1,min_blocks=1,"
    "store=staged,group=1"
)
"""Warps store 8 columns of C."""
ODD, EVEN = "35x53x331", "48x80x272"
WIDE = "24x280x400"
FEW = "5x269x331"

CASES = (
    # Each pair of types and each output, promoted every 128 of K and not.
    (SQUARE, f"{EVEN}:f8:nt"),
    (SQUARE, f"{EVEN}:f8:nt:fast:out=f16"),
    (SLICED, f"{EVEN}:f8e5:nt:out=f32:bias_gelu"),
    (SLICED, f"{EVEN}:f8e5:nt:e5m2=b"),
    (SPLIT, f"{EVEN}:f8e5:nt:e5m2=ab:fast"),
    (NARROW, "8x160x272:f8e5:nt:e5m2=b:bias_relu"),
    (SQUARE, f"{EVEN}:i8:nt:bias"),
    *((form, f"{EVEN}:i8:nt:out=i32") for form in (SLICED, SPLIT)),
    (SLICED, f"{ODD}:i8:nt:out=i32"),
    (NARROW, f"{FEW}:i8:nt:out=i32:batch=2"),
    # A residual, with scales and without.
    (SQUARE, f"{EVEN}:f8:nt:bias_residual:scale=row:batch=2"),
    (SPLIT, f"{ODD}:i8:nt:residual:out=f32:scale=row"),
    (NARROW, f"{FEW}:f8:nt:residual:scale=block"),
    # SwiGLU, with scales and without.
    (SQUARE, "35x80x331:f8:nn:swiglu:scale=row:batch=2"),
    (SLICED, f"{EVEN}:f8e5:nt:swiglu:out=f32"),
    (SPLIT, f"{EVEN}:i8:nt:swiglu:scale=tensor"),
    (NARROW, "5x272x331:f8:nt:swiglu:scale=block"),
    (NARROW, "5x272x331:i8:nt:swiglu:scale=row:out=f16"),
    # fp8 results.
    (SQUARE, f"{EVEN}:f8:nt:scale=row:out=e4m3:bias_gelu"),
    (SPLIT, f"{ODD}:f8:nt:out=e5m2:bias:batch=2"),
    (SQUARE, "35x80x331:f8:nn:swiglu:scale=row:out=e4m3"),
    (NARROW, "5x272x331:f8:nt:swiglu:out=e4m3"),
    (THIN, f"{EVEN}:f8:nt:scale=row:out=e4m3"),
    (THIN.replace("wn=8", "wn=16"), f"{EVEN}:f8:nt:swiglu:out=e4m3"),
    # Every layout, rows that end within a vector or allow none.
    *((SQUARE, f"{ODD}:f8:{layout}:scale=row") for layout in LAYOUTS),
    *((SPLIT, f"{ODD}:i8:{layout}:out=i32:batch=2") for layout in LAYOUTS),
    *((NARROW, f"{FEW}:f8:{layout}:scale=row") for layout in LAYOUTS),
    (SLICED, "1x1x1:f8:nn:scale=block"),
    # Scales of the operands, of rows and columns, of blocks whose last are shorter.
    (SQUARE, f"{EVEN}:f8:nt:scale=tensor"),
    (SPLIT, f"{EVEN}:i8:nt:scale=tensor:out=f32"),
    (SLICED, f"{ODD}:i8:nt:scale=row:batch=2:bias_relu"),
    (SPLIT, f"{WIDE}:f8:nt:scale=row:batch=2"),
    (NARROW, f"{FEW}:i8:nt:scale=row"),
    *((form, f"{WIDE}:f8:nt:scale=block:batch=2") for form in (SQUARE, SLICED, SPLIT)),
    (SQUARE, f"{ODD}:f8:tn:scale=block:fast"),
    (NARROW, f"{FEW}:f8e5:nn:e5m2=b:scale=block:batch=2"),
)


def config_of(form: str, problem: Problem) -> Config:
    """The form with the operands to transpose packed and the promotion that the rules ask for."""
    pack = "".join(name for name in "ab" if must_transpose(problem, name)) or "none"
    p = Config.parse(f"mma:compute={problem.compute},{form}")
    depth = p.integer("bk") // p.integer("slices")
    exact = problem.accumulate == "exact" and not problem.precision.operand.integer
    promote = 1 if problem.scale == "block" else 128 // depth if exact else 0
    return Config.of("mma", {**p.values, "pack": pack, "promote": promote})


def cases_of(form: str, text: str) -> list[Case]:
    problem = Problem.parse(text)
    config = config_of(form, problem)
    if problem.output == "i32":
        return [case_of(config, problem), case_of(config, problem, padding=(1, 3, 5))]
    if problem.has_fp8_output:
        return [
            case_of(config, problem),
            case_of(config, problem, scale_c=4.0, amax=0.5, padding=(16, 4, 9)),
            case_of(config, problem, scale_c=0.25, amax=1e5),
        ]
    if problem.gated:
        return [case_of(config, problem), case_of(config, problem, padding=(16, 4, 9))]
    cases = [
        case_of(config, problem),
        case_of(config, problem, alpha=1.5, beta=0.5, padding=(16, 4, 8)),
        case_of(config, problem, alpha=0.0, beta=0.5),
    ]
    if problem.m % 2:
        cases.append(case_of(config, problem, offsets=(1, 3, 1), gaps=(8, 1, 3)))
    return cases


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    launches = (
        launch for case in CASES for each in cases_of(*case) for launch in each.plan.launches
    )
    return build((launch.template for launch in launches), host_objects)


@pytest.mark.parametrize(("form", "text"), CASES)
def test_mma_of_8_bits_matches_float64(program: Program, form: str, text: str) -> None:
    check(program, cases_of(form, text))


@pytest.mark.parametrize(
    "text",
    [
        f"{ODD}:i8:nn:out=i32:batch=2",
        f"{WIDE}:f8:nt:scale=row:batch=2",
        f"{WIDE}:f8:nt:scale=block:batch=2",
    ],
)
def test_splits_of_8_bits_add_up_to_the_same_bits(program: Program, text: str) -> None:
    case = cases_of(SPLIT, text)[0]
    first, *repeats = run(program, [case] * 5)
    assert [result.tobytes() for result in repeats] == [first.tobytes()] * 4
