"""The cases that `host_cuda` runs: a launch plan with its operands, and the exact result."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import gcd
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from autotune.cuda.launches import layout
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import (
    Alignment,
    Argument,
    Launch,
    LaunchPlan,
    Struct,
    Template,
    TensorMap,
)
from autotune.measure import oracle
from autotune.problem import Problem
from autotune.problem.call import BY_NAME
from support import eight_bits
from support.oracle_errors import error_unit
from support.oracle_products import product

Matrix = NDArray[Any]
"""Elements as they are stored: float32, float16, int8, int32, or their bits: uint16 for bfloat16,
uint8 for fp8."""

BUFFERS = (*BY_NAME, "workspace", "counters")
NULL_POINTER = 0xFFFFFFFF


class HostFault(AssertionError):
    """A kernel did something illegal; the message holds the sanitizer's report."""


@dataclass(frozen=True)
class Case:
    """A GEMM to run: its plan, the alignment it needs, and its operands.

    `a` and `b` have their stored shapes, (k, m) for a transposed A. A batch has a third axis in
    front, of length 1 if all its problems share the operand. Elements have the problem's types, as
    `stored` gives them. Each operand has exactly the alignment that the plan requires; its rows are
    `leading_dimensions` apart and its matrices `strides`. `scales` are those of A and B, in the
    problem's shapes. The rows and matrices of the residual are `residual_steps` apart. `optional`
    are the operands that a call may leave out, by name, in fp32.
    """

    problem: Problem
    plan: LaunchPlan
    alignment: Alignment
    a: Matrix
    b: Matrix
    c: Matrix
    leading_dimensions: tuple[int, int, int]
    alpha: float = 1.0
    beta: float = 0.0
    strides: tuple[int, int, int] = (0, 0, 0)
    bias: Matrix | None = None
    scales: tuple[Matrix, Matrix] | None = None
    residual: Matrix | None = None
    residual_steps: tuple[int, int] = (0, 0)
    b_ready: bool = False
    optional: Mapping[str, Matrix] = field(default_factory=dict)

    @property
    def scale_c(self) -> float:
        """The scale of an fp8 C."""
        return float(self.optional["scale_c"][0]) if "scale_c" in self.optional else 1.0

    @property
    def amax(self) -> float | None:
        """The number that an fp8 C raises, before the launch; None without one."""
        return float(self.optional["amax"][0]) if "amax" in self.optional else None


def case_of(
    config: Config,
    problem: Problem,
    *,
    padding: tuple[int, int, int] = (0, 0, 0),
    gaps: tuple[int, int, int] = (0, 0, 0),
    offsets: tuple[int, int, int] = (0, 0, 0),
    shared: str = "",
    alpha: float = 1.0,
    beta: float = 0.0,
    scale_c: float | None = None,
    amax: float | None = None,
) -> Case:
    """A case of normal random operands.

    `padding` is the number of elements after each row of A, B and C, `gaps` the number between
    their matrices, `offsets` the number between an aligned address and their start. A batch shares
    the operands named in `shared`. The plan uses all alignment that this leaves. At beta = 0, C is
    NaN; at alpha = 0, A, B and their scales are. A residual has twice the padding of C.
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
    sizes = sizes_of(problem)
    start_a, start_b, start_c = (start * size for start, size in zip(offsets, sizes, strict=True))
    addresses = start_a, start_b, start_c
    ldr = dense[2] + 2 * padding[2] if problem.has_residual else 0
    stride_r = problem.m * ldr + gaps[2] if stride_c and ldr else 0
    alignment = Alignment.of(
        (lda, ldb, gcd(ldc, ldr)), addresses, sizes, (stride_a, stride_b, gcd(stride_c, stride_r))
    )
    plan = registry.find(config.family).plan(config, problem, alignment)
    case = random_case(problem, plan, alignment, (lda, ldb, ldc), alpha, beta, strides)
    given = {"scale_c": scale_c, "amax": amax}
    optional = {name: np.array([x], np.float32) for name, x in given.items() if x is not None}
    return replace(case, residual_steps=(ldr, stride_r), optional=optional)


def random_case(
    problem: Problem,
    plan: LaunchPlan,
    alignment: Alignment,
    leading_dimensions: tuple[int, int, int],
    alpha: float = 1.0,
    beta: float = 0.0,
    strides: tuple[int, int, int] = (0, 0, 0),
) -> Case:
    """A case of normal random operands for `plan`; a batch shares the operands of stride 0.

    At beta = 0, C is NaN; at alpha = 0, A, B and their scales are.
    """
    random = np.random.default_rng(0)

    def matrices(stride: int, rows: int, columns: int, element: str, factor: float = 1.0) -> Matrix:
        batch = (problem.batch if stride else 1,) if problem.batch > 1 else ()
        values = random.standard_normal((*batch, rows, columns), np.float32)
        return stored(values * np.float32(factor), element)

    factors = oracle.operand_factor(problem, 0), oracle.operand_factor(problem, 1)
    if not alpha:
        factors = np.nan, np.nan
    a = matrices(strides[0], problem.m, problem.k, problem.operand_types[0], factors[0])
    b = matrices(strides[1], problem.k, problem.n, problem.operand_types[1], factors[1])
    c = matrices(strides[2], problem.m, problem.width, problem.output_type)
    bias = stored(random.standard_normal(problem.n, np.float32), problem.bias_element.name)
    residual = None
    if problem.has_residual:
        residual = matrices(strides[2], problem.m, problem.n, problem.output_type)
    return Case(
        problem,
        plan,
        alignment,
        a if problem.layout[0] == "n" else a.swapaxes(-1, -2),
        b if problem.layout[1] == "n" else b.swapaxes(-1, -2),
        c if beta else stored(np.full(c.shape, np.nan, np.float32), problem.output_type),
        leading_dimensions,
        alpha,
        beta,
        strides,
        bias if problem.has_bias else None,
        random_scales(problem, 1.0 if alpha else np.nan),
        residual,
    )


def random_scales(problem: Problem, factor: float = 1.0) -> tuple[Matrix, Matrix] | None:
    """Scales that differ from each other, for operands as `random_case` draws them, all times a
    factor."""
    if problem.scale_shapes is None:
        return None
    random = np.random.default_rng(1)
    scale_a, scale_b = (
        (oracle.scale_size(problem, side) * factor * random.uniform(0.8, 1.25, shape)).astype(
            np.float32
        )
        for side, shape in enumerate(problem.scale_shapes)
    )
    return scale_a, scale_b


def sizes_of(problem: Problem) -> tuple[int, int, int]:
    """Bytes of an element of A, B and C."""
    return problem.element_bytes, problem.element_bytes, problem.output_bytes


def stored(values: NDArray[np.float32], element: str) -> Matrix:
    """The values rounded to the type `element`, ties to even; NaN stays NaN."""
    if element in eight_bits.VALUES:
        codes = eight_bits.encoded(values, element)
        return codes.view(np.int8) if element == "i8" else codes
    if element == "i32":
        rounded_off: Matrix = np.rint(np.nan_to_num(values)).astype(np.int32)
        return rounded_off
    if element != "bf16":
        return values.astype(np.float16 if element == "f16" else np.float32)
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    result: Matrix = np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)
    return result


def numbers(matrix: Matrix, element: str = "e4m3") -> NDArray[np.float64]:
    """The elements of a matrix in float64; `element` tells one type of fp8 from the other."""
    if matrix.dtype == np.uint8:
        return eight_bits.decoded(matrix, element).astype(np.float64)
    if matrix.dtype == np.uint16:
        matrix = (matrix.astype(np.uint32) << 16).view(np.float32)
    values: NDArray[np.float64] = matrix.astype(np.float64)
    return values


def expected(case: Case) -> NDArray[np.float64]:
    """The expected C in float64."""
    problem = case.problem
    a, b, scales = _factors(case)
    bias = None if case.bias is None else numbers(case.bias)
    residual = None if case.residual is None else numbers(case.residual)
    return product(
        *(problem, a, b, numbers(case.c), bias),
        alpha=case.alpha,
        beta=case.beta,
        scales=scales,
        residual=residual,
    )


def _factors(case: Case) -> tuple[NDArray[np.float64], NDArray[np.float64], Any]:
    """A, B and their scales; at alpha = 0, where they do not count, zeros and ones."""
    a, b = (
        numbers(matrix, element)
        for matrix, element in zip((case.a, case.b), case.problem.operand_types, strict=True)
    )
    if case.alpha:
        return a, b, case.scales
    ones = case.scales and tuple(np.ones_like(scale) for scale in case.scales)
    return np.zeros_like(a), np.zeros_like(b), ones


def tolerance(case: Case, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """The error allowed in each element for normal random operands, or for these, of 8 bits."""
    problem = case.problem
    if problem.precision.eight_bit:
        return _tolerance_of_8_bits(case, wanted)
    allowed = oracle.tolerance(problem, case.alpha, case.beta)
    unit = error_unit(_sums(case), allowed) if problem.gated else 1.0
    result: NDArray[np.float64] = allowed * unit + problem.output_element.roundoff * np.abs(wanted)
    return result


def _sums(case: Case, size: Callable[[Any], Any] = np.asarray) -> NDArray[np.float64]:
    """The sums of the products of the case, or of their sizes."""
    plain = replace(case.problem, epilogue="none")
    a, b, scales = _factors(case)
    return product(plain, size(a), size(b), alpha=abs(case.alpha), scales=scales)


def _tolerance_of_8_bits(case: Case, wanted: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums of fp8 are rounded as fp32 on the CPU, those of int8 are exact: what is left are the
    roundings of the sums' sizes and of the epilogue."""
    problem = case.problem
    if problem.output == "i32":
        return np.zeros_like(wanted)
    sums = _sums(case, np.abs)
    units = 8 if problem.precision.operand.integer else problem.k + 16
    added = np.abs(case.beta * numbers(case.c)) if case.beta else 0
    slope = oracle.SLOPE if problem.gated or problem.activation in oracle.CURVES else 1
    if problem.gated:
        gate, up = oracle.gates(_sums(case))
        of_gate, of_up = oracle.gates(sums)
        sums = of_gate * np.abs(up) + of_up * np.abs(gate)
    size: NDArray[np.float64] = np.abs(wanted)
    allowed = slope * (sums * units + 8 * added) + 16 * size + 96
    return oracle.UNIT_ROUNDOFF * allowed + problem.output_element.roundoff * size


def name_of(template: Template) -> str:
    """The name of a kernel instance in the launcher."""
    return f"{template.source}:{template.label}"


def label(case: Case) -> str:
    """The name of a case in messages."""
    return f"{case.plan.config} on {case.problem}"


def _matrices(memory: NDArray[Any], shape: tuple[int, ...], ld: int, stride: int) -> NDArray[Any]:
    """Matrices in flat memory, their rows `ld` and the matrices `stride` elements apart."""
    steps = (stride, ld, 1)[-len(shape) :]
    return as_strided(memory, shape, [memory.itemsize * step for step in steps])


def _stored(matrices: Matrix, ld: int, stride: int) -> Matrix:
    """The memory of the matrices up to the last element, with NaN in the gaps."""
    *batch, rows, columns = matrices.shape
    size = sum((count - 1) * stride for count in batch) + (rows - 1) * ld + columns
    memory: Matrix = np.frombuffer(b"\xff" * (size * matrices.itemsize), matrices.dtype).copy()
    _matrices(memory, matrices.shape, ld, stride)[:] = matrices
    return memory


def memory_of_c(case: Case) -> Matrix:
    """The memory of C before the case runs."""
    return _stored(case.c, case.leading_dimensions[2], case.strides[2])


def c_in(after: Matrix, case: Case) -> Matrix:
    """C, read from its memory `after` the run.

    Raises:
        HostFault: if the run wrote into the gaps.
    """
    before, place = memory_of_c(case), (case.c.shape, case.leading_dimensions[2], case.strides[2])
    gaps = np.full(after.size, True)
    _matrices(gaps, *place)[:] = False
    bits = f"u{after.itemsize}"
    if (after.view(bits)[gaps] != before.view(bits)[gaps]).any():
        raise HostFault(f"{label(case)}: wrote between the rows of C")
    result: Matrix = _matrices(after, *place).copy()
    return result


def job(case: Case) -> bytes:
    """The case in the form that `launcher.cpp` reads."""
    alignment, sizes = case.alignment, sizes_of(case.problem)
    contents = {
        name: _stored(matrix, ld, stride).tobytes()
        for name, matrix, ld, stride in zip(
            "abc", (case.a, case.b, case.c), case.leading_dimensions, case.strides, strict=True
        )
    }
    contents |= {name: vector.tobytes() for name, vector in _vectors(case).items()}
    if case.residual is not None:
        contents["residual"] = _stored(case.residual, *case.residual_steps).tobytes()
    contents["workspace"] = b"\xff" * case.plan.workspace
    contents["counters"] = bytes(4 * case.plan.counters)
    starts = {
        "a": alignment.a * sizes[0],
        "b": alignment.b * sizes[1],
        "c": alignment.c * sizes[2],
        "bias": case.problem.bias_element.bytes,
        "residual": alignment.c * sizes[2],
        "workspace": 16,
    }
    return b"".join(
        [
            struct.pack("<I", len(case.plan.launches)),
            buffers(contents, starts),
            *(_launch(launch, case) for launch in case.plan.launches),
        ]
    )


def buffers(contents: Mapping[str, bytes], starts: Mapping[str, int]) -> bytes:
    """The `BUFFERS` as `launcher.cpp` reads them, each at a multiple of its start, which is 4 by
    default. A buffer without contents is empty."""
    packed = struct.pack("<I", len(BUFFERS))
    for name in BUFFERS:
        content = contents.get(name, b"")
        packed += struct.pack("<I", len(name)) + name.encode()
        packed += struct.pack("<II", starts.get(name, 4), len(content)) + content
    return packed


def _vectors(case: Case) -> dict[str, Matrix]:
    """The operands of a case that are not matrices, by name."""
    vectors = dict(case.optional)
    if case.bias is not None:
        vectors["bias"] = case.bias
    if case.scales is not None:
        vectors |= dict(zip(("scale_a", "scale_b"), case.scales, strict=True))
    return vectors


def _launch(launch: Launch, case: Case) -> bytes:
    name = name_of(launch.template).encode()
    head = struct.pack("<I", len(name)) + name
    shape = struct.pack("<7I", *launch.grid, *launch.block, launch.shared)
    count = struct.pack("<I", len(launch.arguments))
    return head + shape + count + b"".join(_argument(each, case) for each in launch.arguments)


def _argument(argument: Argument, case: Case) -> bytes:
    if isinstance(argument.value, Struct):
        packed = layout((argument.parameter,))
        cells = zip(packed.cells, argument.cells, strict=True)
        members = [struct.pack("<I", offset) + _argument(cell, case) for offset, cell in cells]
        return struct.pack("<cII", b"s", packed.size, len(members)) + b"".join(members)
    assert isinstance(argument.type, str)
    assert not isinstance(argument.value, bytes)
    if argument.type == "pointer":
        present = {"a", "b", "c", *_vectors(case)}
        if case.residual is not None:
            present.add("residual")
        absent = BY_NAME.keys() - present
        null = argument.value in absent
        index = NULL_POINTER if null else BUFFERS.index(str(argument.value))
        return struct.pack("<cI", b"p", index)
    if isinstance(argument.value, TensorMap):
        return _tensor_map(argument.value, case)
    value = _number(argument.value, case)
    form = {"i32": "i", "i64": "q", "f32": "f", "f64": "d"}[argument.type]
    code = {"i32": b"i", "i64": b"l", "f32": b"f", "f64": b"d"}[argument.type]
    return struct.pack(f"<c{form}", code, value)


def _tensor_map(tensor: TensorMap, case: Case) -> bytes:
    pitch, stride = int(_number(tensor.pitch, case)), int(_number(tensor.stride, case))
    size = tensor.element_bytes
    head = struct.pack(
        "<cIqii", b"t", BUFFERS.index(tensor.base), tensor.offset, size, tensor.type == "tf32"
    )
    batch = tensor.batch if stride else 1
    extents = (tensor.columns, tensor.rows, batch, pitch * size, stride * size)
    return head + struct.pack("<5q3i", *extents, *tensor.box, tensor.swizzle)


def _number(value: str | float, case: Case) -> float:
    """A number of the launch, or the case's value for a symbol such as `alpha` or `lda`."""
    if not isinstance(value, str):
        return value
    symbols: dict[str, float] = {"alpha": case.alpha, "beta": case.beta, "b_ready": case.b_ready}
    symbols |= dict(zip(("ldr", "stride_r"), case.residual_steps, strict=True))
    for name, ld, stride in zip("abc", case.leading_dimensions, case.strides, strict=True):
        symbols |= {f"ld{name}": ld, f"stride_{name}": stride}
    return symbols[value]
