"""Emulated tensor cores and bulk copies on the CPU: small kernels agree with numpy, and each broken
kernel fails."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from support.host_cases import Case, HostFault, Matrix, numbers, random_case, stored
from support.host_cuda import CUDA_SRC, HOST, Program, build, check, run

from autotune.families.config import Config
from autotune.families.plan import (
    Alignment,
    Argument,
    Launch,
    LaunchPlan,
    Template,
    TensorMap,
)
from autotune.families.shared.arguments import along_k, operands
from autotune.problem import Problem
from autotune.problem.integers import round_up

EMULATED = sorted(path.relative_to(HOST) for path in HOST.rglob("*.cuh"))
NAN = "error nan"
EARLY = "error nan|more arrivals at an mbarrier"
WRONG = "error nan|error [0-9.e+]+, tolerance"
DEADLOCK = "deadlock:"

WARP_DEFECTS = {
    "exchanges registers": (1, WRONG),
    "leaves lanes out": (2, "divergent warp: some threads have exited"),
    "loads misaligned": (3, r"a row of a matrix at byte \d+, no multiple of 16"),
    "loads before the barrier": (4, NAN),
}
GROUP_DEFECTS = {
    "reads before it arrives": (1, EARLY),
    "waits for the wrong phase": (2, EARLY),
    "releases too early": (3, WRONG),
    "never releases": (4, r"deadlock:\s+threads 0..127 wait for parity 1 of the barrier at byte"),
    "releases twice": (5, f"more arrivals at an mbarrier|{DEADLOCK}|{WRONG}"),
    "expects too little": (6, f"{DEADLOCK}|{WRONG}"),
    "expects too much": (7, DEADLOCK),
    "steps over rows": (8, WRONG),
    "forgets the stride": (9, WRONG),
    "reads sums too early": (10, NAN),
    "never waits for sums": (11, "ends without waiting for its wgmmas"),
    "adds without a fence": (12, "adds to sums written without a fence"),
    "leaves a warp out": (13, "divergent warpgroup: some threads have exited"),
    "stores before the barrier": (14, WRONG),
    "overwrites a pending store": (15, WRONG),
    "never waits for stores": (16, "ends without waiting for its bulk stores"),
    "miscounts the named barrier": (
        17,
        r"threads 0..127 wait for the named barrier at .*group_wgmma.cu:\d+",
    ),
    "misplaces a stage": (18, "starts at byte 64, no multiple of 128"),
    "never initialises": (19, "was not initialised or has been overwritten"),
}


@dataclass(frozen=True)
class Group:
    """A matmul of one warpgroup; `compute` and `layout` as in a problem."""

    n: int
    compute: str
    layout: str
    registers: bool = False
    e5m2: str = "a"


GROUPS = (
    *(Group(n, "bf16", layout) for n in (8, 88) for layout in ("nn", "nt", "tn", "tt")),
    *(Group(256, "f16", layout) for layout in ("nn", "tt")),
    *(Group(n, "i8", "nt") for n in (24, 112)),
    Group(88, "f8", "nt"),
    *(Group(40, "f8e5", "nt", e5m2=e5m2) for e5m2 in ("a", "b", "ab")),
    *(Group(40, "tf32", "nt", registers) for registers in (False, True)),
)
EIGHT_BITS = (
    *(("i8", "a"), ("f8", "a")),
    *(("f8e5", e5m2) for e5m2 in ("a", "b", "ab")),
)
# With B stored along K.
BROKEN = Group(40, "bf16", "nt")


def _warp(compute: str, k: int, defect: int = 0, e5m2: str = "a") -> Case:
    problem = Problem(16, 8, k, compute, output="f32", e5m2=e5m2)
    arguments = (*_types(problem), ("HALF", int(k == 8)), ("DEFECT", defect))
    template = Template("warp_mma.cu", "warp_mma", arguments)
    launch = Launch(template, (1, 1, 1), (32, 1, 1), 48 * k, operands(problem))
    plan, alignment = LaunchPlan(Config("warp_mma"), (launch,)), Alignment.dense(problem)
    return _exact(random_case(problem, plan, alignment, problem.leading_dimensions))


def _types(problem: Problem) -> tuple[tuple[str, int], ...]:
    a, b = problem.operand_elements
    return ("TYPE_A", a.number), ("TYPE_B", b.number)


def _group(group: Group, defect: int = 0, m: int = 50, k: int = 232, swizzle: int = 128) -> Case:
    """m x n x k, with n 4 less than the tile's: tiles reach past all edges of the matrices."""
    problem = Problem(m, group.n - 4, k, group.compute, group.layout, output="f32", e5m2=group.e5m2)
    along = along_k(problem, "a"), along_k(problem, "b")
    template = Template(
        "group_wgmma.cu",
        "group_wgmma",
        (
            *(*_types(problem), ("N", group.n), ("ALONG_K_A", int(along[0]))),
            *(("ALONG_K_B", int(along[1])), ("REGISTERS", int(group.registers))),
            ("DEFECT", defect),
        ),
    )
    width = max(8, 16 // problem.element_bytes)
    lda, ldb, ldc = (round_up(ld, width) for ld in problem.leading_dimensions)
    lds = lda, ldb, ldc
    element = problem.precision.tensor_map.name
    line = 128 // problem.element_bytes
    box_a = (line, 64 if along[0] else line)
    box_b = (line, group.n if along[1] else line)
    shapes = zip("abc", lds, problem.stored_rows, problem.leading_dimensions, strict=True)
    boxes = {
        "a": (element, box_a, 128),
        "b": (element, box_b, swizzle),
        "c": ("f32", (32, 64), 128),
    }
    maps = tuple(
        TensorMap(
            *(name, 0, boxes[name][0], columns, rows, 1, f"ld{name}", f"stride_{name}"),
            *boxes[name][1:],
        )
        for name, _, rows, columns in shapes
    )
    size_b = (group.n if along[1] else round_up(group.n, 64)) * 128
    shared = 2 * round_up(8192 + size_b, 1024) + 8192 + 4 * 8
    arguments = (*(Argument("tensor_map", tensor_map) for tensor_map in maps), Argument("i32", k))
    launch = Launch(template, (1, 1, 1), (160, 1, 1), shared, arguments)
    sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
    alignment = Alignment.of(lds, (0, 0, 0), sizes)
    plan = LaunchPlan(Config("group_wgmma"), (launch,))
    return _exact(random_case(problem, plan, alignment, lds))


def _exact(case: Case) -> Case:
    """In tf32, the case with small integers, exact in tf32, so that sums are exact."""
    if case.problem.compute != "tf32":
        return case
    random = np.random.default_rng(1)

    def integers(matrix: Matrix) -> Matrix:
        return random.integers(-100, 100, matrix.shape).astype(np.float32)

    return replace(case, a=integers(case.a), b=integers(case.b))


@pytest.fixture(scope="module")
def program(host_objects: Path) -> Program:
    cases = [
        *(_warp(compute, 16) for compute in ("f16", "bf16")),
        *(_warp(compute, 8) for compute in ("f16", "tf32")),
        *(_warp(compute, 32, e5m2=e5m2) for compute, e5m2 in EIGHT_BITS),
        *(_warp("bf16", 16, number) for number, _ in WARP_DEFECTS.values()),
        *(_group(group) for group in GROUPS),
        *(_group(BROKEN, number) for number, _ in (*GROUP_DEFECTS.values(), (0, ""))),
    ]
    templates = (launch.template for case in cases for launch in case.plan.launches)
    return build(templates, host_objects, sources=HOST)


@pytest.mark.parametrize(("compute", "k"), [("f16", 16), ("bf16", 16), ("f16", 8), ("tf32", 8)])
def test_warp_mma_matches_numpy(program: Program, compute: str, k: int) -> None:
    check(program, [_warp(compute, k)])


@pytest.mark.parametrize(("compute", "e5m2"), EIGHT_BITS)
def test_warp_mma_of_8_bits_matches_numpy(program: Program, compute: str, e5m2: str) -> None:
    check(program, [_warp(compute, 32, e5m2=e5m2)])


def test_sums_of_int8_wrap_around(program: Program) -> None:
    """2^17 products of -128 with itself."""
    case = _group(Group(24, "i8", "nt"), m=1, k=2**17)
    a, b = np.full_like(case.a, -128), np.full_like(case.b, -128)
    (result,) = run(program, [replace(case, a=a, b=b)])
    np.testing.assert_array_equal(result, np.full_like(case.c, -(2.0**31)))


@pytest.mark.parametrize("defect", WARP_DEFECTS)
def test_broken_warp_mma_fails(program: Program, defect: str) -> None:
    number, report = WARP_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_warp("bf16", 16, number)])


@pytest.mark.parametrize("group", [*GROUPS, BROKEN], ids=str)
def test_wgmma_matches_numpy(program: Program, group: Group) -> None:
    check(program, [_group(group), _group(group, m=64, k=24), _group(group, m=2, k=512)])


@pytest.mark.parametrize("defect", GROUP_DEFECTS)
def test_broken_wgmma_fails(program: Program, defect: str) -> None:
    number, report = GROUP_DEFECTS[defect]
    with pytest.raises(HostFault, match=report):
        check(program, [_group(BROKEN, number)])


def test_tile_without_swizzle_fails(program: Program) -> None:
    with pytest.raises(HostFault, match=WRONG):
        check(program, [_group(BROKEN, swizzle=0)])


def test_tf32_tensor_maps_round_to_nearest(program: Program) -> None:
    """1 + 2^-11 is halfway between two tf32 numbers."""
    case = _group(GROUPS[-1], m=1, k=32)
    a = np.zeros_like(case.a)
    a[0, 0] = 1 + 2.0**-11
    b = np.zeros_like(case.b)
    b[0, 0] = 1 + 2.0**-12
    (result,) = run(program, [replace(case, a=a, b=b)])
    assert result[0, 0] == 1 + 2.0**-10


@pytest.mark.parametrize("header", EMULATED, ids=str)
def test_emulated_header_declares_the_same_functions(header: Path) -> None:
    text = (CUDA_SRC / "include" / header).read_text()
    declared = re.findall(r"^__device__ __forceinline__[^(]*?(\w+)\(", text, re.MULTILINE)
    emulated = re.findall(r"^inline[^(]*?(\w+)\(", (HOST / header).read_text(), re.MULTILINE)
    assert sorted(emulated) == sorted(declared)


def test_bfloat16_is_rounded_to_even() -> None:
    values = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8, np.nan, -np.inf, 3.4e38], np.float32)
    rounded = numbers(stored(values, "bf16"))
    np.testing.assert_array_equal(rounded, [1, 1 + 2.0**-6, np.nan, -np.inf, np.inf])
