"""The cases that `host_cuda` runs: a launch plan with its operands, and what must come out."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import erf
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from autotune import families
from autotune.config import Config
from autotune.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.problem import Problem

Matrix = NDArray[np.float32]

BUFFERS = ("a", "b", "c", "bias", "workspace", "counters")
NULL_POINTER = 0xFFFFFFFF


class HostFault(AssertionError):
    """A kernel did something illegal; the message holds the sanitizer's report."""


@dataclass(frozen=True)
class Case:
    """One multiplication: the plan and its operands.

    `a` and `b` have the shapes in which they are stored, (k, m) for a transposed A; with a third
    axis in front they are a batch, of one matrix if all products share it. Each operand is put at
    exactly the alignment that the plan counts on, with rows `leading_dimensions` and matrices
    `strides` apart.
    """

    plan: LaunchPlan
    a: Matrix
    b: Matrix
    c: Matrix
    leading_dimensions: tuple[int, int, int]
    alpha: float = 1.0
    beta: float = 0.0
    strides: tuple[int, int, int] = (0, 0, 0)
    bias: Matrix | None = None


def case_of(
    config: Config,
    problem: Problem,
    *,
    padding: tuple[int, int, int] = (0, 0, 0),
    gaps: tuple[int, int, int] = (0, 0, 0),
    shared: str = "",
    alpha: float = 1.0,
    beta: float = 0.0,
) -> Case:
    """A case of normal random operands.

    `padding` is how many more elements there are in each row of A, B and C, `gaps` how many between
    their matrices; all of the batch share the operands named in `shared`. The plan counts on as
    much alignment as that allows. At beta = 0, C is NaN.
    """
    dense = problem.leading_dimensions
    lda, ldb, ldc = (ld + extra for ld, extra in zip(dense, padding, strict=True))
    stride_a, stride_b, stride_c = (
        0 if name in shared or problem.batch == 1 else count * ld + gap
        for name, count, ld, gap in zip(
            "abc", problem.stored_rows, (lda, ldb, ldc), gaps, strict=True
        )
    )
    strides = stride_a, stride_b, stride_c
    alignment = Alignment.of((lda, ldb, ldc), (0, 0, 0), problem.element_bytes, strides)
    plan = families.find(config.family).plan(config, problem, alignment)
    return random_case(plan, (lda, ldb, ldc), alpha, beta, strides)


def random_case(
    plan: LaunchPlan,
    leading_dimensions: tuple[int, int, int],
    alpha: float = 1.0,
    beta: float = 0.0,
    strides: tuple[int, int, int] = (0, 0, 0),
) -> Case:
    """A case of normal random operands for `plan`; all of a batch share an operand of stride 0.
    At beta = 0, C is NaN."""
    problem, random = plan.problem, np.random.default_rng(0)

    def matrices(stride: int, rows: int, columns: int) -> Matrix:
        batch = (problem.batch if stride else 1,) if problem.batch > 1 else ()
        return random.standard_normal((*batch, rows, columns), np.float32)

    a = matrices(strides[0], problem.m, problem.k)
    b = matrices(strides[1], problem.k, problem.n)
    c = matrices(strides[2], problem.m, problem.n)
    return Case(
        plan,
        a if problem.layout[0] == "n" else a.swapaxes(-1, -2),
        b if problem.layout[1] == "n" else b.swapaxes(-1, -2),
        c if beta else np.full_like(c, np.nan),
        leading_dimensions,
        alpha,
        beta,
        strides,
        random.standard_normal(problem.n, np.float32) if problem.has_bias else None,
    )


def expected(case: Case) -> NDArray[np.float64]:
    """What must come out, in float64."""
    problem = case.plan.problem
    a, b = (
        one.astype(np.float64) if letter == "n" else one.astype(np.float64).swapaxes(-1, -2)
        for one, letter in zip((case.a, case.b), problem.layout, strict=True)
    )
    value: NDArray[np.float64] = case.alpha * (a @ b) + (case.beta * case.c if case.beta else 0.0)
    if case.bias is not None:
        value = value + case.bias
    if problem.epilogue.endswith("relu"):
        value = np.maximum(value, 0.0)
    if problem.epilogue.endswith("gelu"):
        value = value * (1 + np.vectorize(erf)(value / 2**0.5)) / 2
    return value


def tolerance(case: Case, wanted: NDArray[np.float64]) -> float:
    """What fp32 may be off by for normal random operands.

    The K roundings of a sum add up like a random walk with a deviation of at most u K / sqrt(6),
    u = 2^-24: 4 u K is ten of them. 64 u covers single products of extreme values, 16 u what
    alpha, beta and the bias add. GELU's slope is at most 1.13, and its own roundings are 4 u of x.
    """
    k, unit = case.plan.problem.k, 2.0**-24
    sum_error = unit * (
        abs(case.alpha) * (4 * k + 64) + 16 * abs(case.beta) + 16 * (case.bias is not None)
    )
    if not case.plan.problem.epilogue.endswith("gelu"):
        return sum_error
    return 1.13 * sum_error + 4 * unit * float(np.abs(wanted).max())


def name_of(template: Template) -> str:
    """What the launcher knows a kernel instance by."""
    return f"{template.source}:{template.expression}"


def label(case: Case) -> str:
    """What messages call a case."""
    return f"{case.plan.config} on {case.plan.problem}"


def _matrices(memory: NDArray[Any], shape: tuple[int, ...], ld: int, stride: int) -> NDArray[Any]:
    """The matrices of that shape in flat memory, rows `ld` and matrices `stride` elements apart."""
    steps = (stride, ld, 1)[-len(shape) :]
    return as_strided(memory, shape, [memory.itemsize * step for step in steps])


def _stored(matrices: Matrix, ld: int, stride: int) -> Matrix:
    """The matrices as they lie in memory, NaN in the gaps, ending with the last element."""
    *batch, rows, columns = matrices.shape
    size = sum((count - 1) * stride for count in batch) + (rows - 1) * ld + columns
    memory = np.full(size, np.nan, np.float32)
    _matrices(memory, matrices.shape, ld, stride)[:] = matrices
    return memory


def memory_of_c(case: Case) -> Matrix:
    """C as it lies in memory before the case runs."""
    return _stored(case.c, case.leading_dimensions[2], case.strides[2])


def c_in(after: Matrix, case: Case) -> Matrix:
    """C in the memory `after`, once nothing in its gaps is found changed.

    Raises:
        HostFault: if something is.
    """
    before, place = memory_of_c(case), (case.c.shape, case.leading_dimensions[2], case.strides[2])
    gaps = np.full(after.size, True)
    _matrices(gaps, *place)[:] = False
    if (after.view(np.uint32)[gaps] != before.view(np.uint32)[gaps]).any():
        raise HostFault(f"{label(case)}: wrote between the rows of C")
    result: Matrix = _matrices(after, *place).copy()
    return result


def job(case: Case) -> bytes:
    """The case in the form that `launcher.cpp` reads."""
    alignment = case.plan.alignment
    operands = zip((case.a, case.b, case.c), case.leading_dimensions, case.strides, strict=True)
    contents = [
        *(_stored(*operand).tobytes() for operand in operands),
        b"" if case.bias is None else case.bias.tobytes(),
        b"\xff" * case.plan.workspace,
        bytes(4 * case.plan.counters),
    ]
    starts = [4 * alignment.a, 4 * alignment.b, 4 * alignment.c, 4, 16, 4]
    return b"".join(
        [
            struct.pack("<I", len(case.plan.launches)),
            *(
                struct.pack("<II", start, len(content)) + content
                for start, content in zip(starts, contents, strict=True)
            ),
            *(_launch(launch, case) for launch in case.plan.launches),
        ]
    )


def _launch(launch: Launch, case: Case) -> bytes:
    name = name_of(launch.template).encode()
    head = struct.pack("<I", len(name)) + name
    shape = struct.pack("<7I", *launch.grid, *launch.block, launch.shared)
    count = struct.pack("<I", len(launch.arguments))
    return head + shape + count + b"".join(_argument(each, case) for each in launch.arguments)


def _argument(argument: Argument, case: Case) -> bytes:
    if argument.type == "pointer":
        null = argument.value == "bias" and case.bias is None
        index = NULL_POINTER if null else BUFFERS.index(str(argument.value))
        return struct.pack("<cI", b"p", index)
    symbols: dict[str, float] = {"alpha": case.alpha, "beta": case.beta}
    for name, ld, stride in zip("abc", case.leading_dimensions, case.strides, strict=True):
        symbols |= {f"ld{name}": ld, f"stride_{name}": stride}
    value = symbols[argument.value] if isinstance(argument.value, str) else argument.value
    form = {"i32": "i", "i64": "q", "f32": "f"}[argument.type]
    code = {"i32": b"i", "i64": b"l", "f32": b"f"}[argument.type]
    return struct.pack(f"<c{form}", code, value)
