"""Launches of the verification kernels (`cuda_src/verify.cu`) on the operands of one problem."""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np

from autotune.cuda.compiler import compile
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import RunnerError
from autotune.families.plan import ArgumentType, Constant, Template
from autotune.families.shared.arguments import each_type, epilogue, scale, transposes
from autotune.measure import exact
from autotune.measure.exact import Draw, Special
from autotune.measure.operands import GuardedMatrix, Operands
from autotune.measure.session import Session
from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div

# As in verify.cu.
THREADS, TILE, DEPTH = 256, 64, 16
REDUCTION_SHARED = 8 * THREADS
REFERENCE_SHARED = 8 * 2 * DEPTH * (TILE + 1)
POISONED, NORMAL, ZERO, RAISED, LOWERED, EVEN, SCALES = range(7)
POISON: Mapping[int, int] = {4: 0x7FFFDEAD, 2: 0x7FED, 1: 0x7F}
"""Bits of the NaN in guards, gaps and what has to be overwritten, by the bytes of an element; of
integers an unlikely number."""

E4M3_BITS = {"nan": 0x7F, str(exact.DENORMAL["e4m3"]): 0x01, str(-exact.DENORMAL["e4m3"]): 0x81}
"""Bits of the special values of e4m3."""

MOST_BLOCKS = 1024  # fills any GPU; smaller buffers take fewer
MEMSET_LIMIT = 2**31  # elements; PyCUDA takes 32-bit counts

REGION: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i64"),
    *("i64", "i64", "i64", "i32", "i64", "f32"),
)
PARAMETERS: Mapping[str, tuple[ArgumentType, ...]] = {
    "fill": (*REGION, "i32"),
    "check": (*REGION, "pointer"),
    "fill_exact": (
        *("pointer", "i64", "i64", "i64", "i64", "i64", "i64"),
        *("i32", "i32", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64"),
    ),
    "fill_scales": ("pointer", "i64", "i64", "i64", "i64"),
    "reference": (
        *("pointer", "i64", "pointer", "i64", "pointer", "pointer", "pointer"),
        *("i32", "i32", "i32", "i64", "i64", "i64"),
    ),
    "compare": (
        *("pointer", "pointer", "i64", "i64", "i32", "i32", "i32"),
        *("f32", "f32", "pointer", "pointer", "i64", "i64"),
        *("f32", "i64", "f32", "f32", "pointer"),
    ),
    "compare_exact": (
        *("pointer", "i64", "i64", "i32", "i32", "i32", "i32", "i32", "f32", "f32"),
        *("i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "f32", "i32", "f32", "f32"),
        *("pointer", "pointer", "i32", "i64", "i64", "i64", "f32", "pointer", "pointer"),
    ),
}
"""The types of the parameters of each kernel in `verify.cu`."""

Kernel = tuple[str, str]
"""A kernel in `verify.cu`, and its element type or its operand, `a` or `b`; empty for neither."""


class VerifyKernels:
    """The kernels of `verify.cu` for one problem; each method puts its work on the stream."""

    def __init__(self, session: Session, operands: Operands, cache: Path | None) -> None:
        """Compiles the kernels through `cache` and loads them.

        Raises:
            MissingError: without a compiler.
            RunnerError: if a kernel does not compile.
        """
        self._session, self._operands = session, operands
        templates = templates_of(operands.problem)
        programs = _compiled(templates, session.device.arch, cache)
        self._kernels = {
            (name, variant): session.load(
                program,
                PARAMETERS[name],
                REFERENCE_SHARED if name == "reference" else REDUCTION_SHARED,
            )
            for (name, variant), program in programs.items()
        }

    def fill(
        self,
        matrix: GuardedMatrix,
        content: int,
        seed: int = 0,
        *,
        size: float = 1.0,
        guards: bool = True,
    ) -> None:
        """Fills rows with `content`, drawn from `seed`, and, if `guards`, all else with poison.

        Normal numbers and scales are `size` times as large as they are drawn.
        """
        kernel = "fill", matrix.type
        self._launch(
            *(kernel, matrix.guarded_length, *matrix.region, content, seed, size, int(guards))
        )

    def fill_factors(self, draw: Draw) -> None:
        """Fills the rows of A and B with the integers of an exact product, and their scales."""
        operands, problem = self._operands, self._operands.problem
        for side, matrix, seed, down in (
            ("a", operands.a, draw.a, problem.layout[0] == "t"),
            ("b", operands.b, draw.b, problem.layout[1] == "n"),
        ):
            self._launch(
                *(("fill_exact", side), matrix.length, *matrix.region),
                *(int(matrix.side_by_side), int(down), matrix.rows),
                *(*astuple(draw.pairing), seed),
            )
        if problem.scale_shapes is None:
            return
        for side, scales, seed in (
            ("a", operands.scale_a, draw.scale_a),
            ("b", operands.scale_b, draw.scale_b),
        ):
            self._launch(
                *(("fill_scales", side), scales.vector.length, scales.vector.address),
                *(scales.count, scales.blocks, scales.batch, seed),
            )

    def fill_added(self, content: int, draw: Draw) -> None:
        """Fills the bias and the residual, as far as the problem has them, with other numbers."""
        operands = self._operands
        if operands.problem.has_bias:
            self.fill(operands.bias, content, draw.bias, guards=False)
        if operands.problem.has_residual:
            self.fill(operands.residual, content, draw.residual, guards=False)

    def place_special(self, special: Special, place: int) -> None:
        """Stores the value in the first matrix of A or B, at `place` of K, or as a scale."""
        operands, layout = self._operands, self._operands.problem.layout
        if special.scale:
            self._place_scale(special)
            return
        if special.row is not None:
            matrix, row, column = operands.a, special.row, place
        else:
            matrix, row, column = operands.b, place, special.column or 0
        if layout[matrix is operands.b] == "t":
            row, column = column, row
        size = ELEMENT_TYPES[matrix.type].bytes
        address = matrix.address + size * (row * matrix.leading_dimension + column)
        self._session.fill(address, stored_bits(special.value, matrix.type), 1, size)

    def _place_scale(self, special: Special) -> None:
        """Gives a row of the first A, or a column of the first B, another scale all along K."""
        operands, problem = self._operands, self._operands.problem
        scale_of = operands.scale_a if special.row is not None else operands.scale_b
        place = special.column or 0 if special.row is None else special.row
        if problem.scale == "tensor":
            place = 0
        elif problem.scale == "block" and special.row is None:
            place = place // SCALE_BLOCK * scale_of.blocks
        step = scale_of.count if special.row is not None else 1
        for block in range(scale_of.blocks):
            address = scale_of.vector.address + 4 * (place + block * step)
            self._session.fill(address, stored_bits(special.value, "f32"), 1)

    def scale_result(self, scale: float) -> None:
        """Sets the scale of C, and `amax` to 0, if it is fp8."""
        if not self._operands.problem.has_fp8_output:
            return
        self._operands.scale_of_c = scale
        addresses = self._operands.addresses
        self._session.fill(addresses["scale_c"], stored_bits(scale, "f32"), 1)
        self._session.fill(addresses["amax"], 0, 1)

    def poison(self, matrix: GuardedMatrix) -> None:
        """Fills a whole buffer, guards included, with poison; the bits that `fill` writes."""
        size = ELEMENT_TYPES[matrix.type].bytes
        if size not in POISON or matrix.guarded_length >= MEMSET_LIMIT:
            self.fill(matrix, POISONED)
            return
        # A memset costs the host a fraction of a kernel launch.
        self._session.fill(int(matrix.allocation), POISON[size], matrix.guarded_length, size)

    def clear(self, words: GuardedMatrix) -> None:
        """Zeroes a vector of 4-byte words and leaves its guards."""
        self._session.fill(words.address, 0, words.length)

    def check(
        self, matrix: GuardedMatrix, content: int, seed: int, place: int, size: float = 1.0
    ) -> None:
        """Adds to the double at `place` how many elements are not what was filled in.

        Guards and gaps have to hold poison; rows have to hold `content`, for POISONED anything.
        """
        kernel = "check", matrix.type
        self._launch(kernel, matrix.guarded_length, *matrix.region, content, seed, size, place)

    def compare(
        self,
        alpha: float,
        beta: float,
        *,
        seed: int,
        roundoff: float,
        tolerance: float,
        place: int,
    ) -> None:
        """Adds to the four doubles from `place` on how far C is from the reference."""
        operands, problem = self._operands, self._operands.problem
        residual = operands.residual
        self._launch(
            *(("compare", ""), problem.batch * problem.m * problem.width),
            *(int(operands.reference), operands.c.address),
            *(operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, alpha, beta, operands.bias.address),
            *(operands.addresses["residual"], residual.leading_dimension, residual.stride),
            *(operands.scale_of_c, seed, roundoff, tolerance, place),
        )

    def compare_exact(
        self,
        alpha: float,
        beta: float,
        draw: Draw,
        *,
        special: Special | None,
        tolerance: float,
        place: int,
    ) -> None:
        """Adds to the two doubles from `place` on how far C is from the exact product; of an fp8 C
        to two more its largest size and `amax`."""
        operands, problem = self._operands, self._operands.problem
        residual = operands.residual
        slack = exact.slack(problem, special)
        special = Special(0.0) if special is None or special.scale else special
        row, column = (-1 if at is None else at for at in (special.row, special.column))
        self._launch(
            *(("compare_exact", ""), problem.batch * problem.m * problem.width),
            *(operands.c.address, operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, operands.a.batch, operands.b.batch),
            *(alpha, beta, draw.a, draw.b, draw.c, draw.bias),
            *(draw.pairing.first, draw.pairing.terms, row, column, special.value),
            *(int(problem.precision.products > 1), tolerance, slack),
            *(operands.addresses["scale_a"], operands.addresses["scale_b"]),
            *(problem.k, draw.residual, residual.leading_dimension, residual.stride),
            *(operands.scale_of_c, operands.addresses["amax"], place),
        )

    def multiply(self) -> None:
        """Computes the float64 product of A and B; K is split where C has few tiles."""
        operands, sms = self._operands, self._session.device.sms
        problem, reference = operands.problem, int(operands.reference)
        tiles = ceil_div(problem.m, TILE) * ceil_div(problem.n, TILE)
        splits = max(1, min(4 * sms // (tiles * problem.batch), problem.k // 256))
        chunk = DEPTH * math.ceil(problem.k / splits / DEPTH)
        words = 2 * problem.batch * problem.m * problem.n
        self._session.fill(reference, 0, words)
        self._kernels["reference", ""].enqueue(
            (tiles, ceil_div(problem.k, chunk), problem.batch),
            (THREADS, 1, 1),
            *(operands.a.address, operands.a.leading_dimension),
            *(operands.b.address, operands.b.leading_dimension),
            *(operands.addresses["scale_a"], operands.addresses["scale_b"]),
            *(reference, problem.m, problem.n, problem.k, chunk),
            *(operands.strides[0], operands.strides[1]),
        )

    def _launch(self, kernel: Kernel, elements: int, *arguments: int | float) -> None:
        """Launches an elementwise kernel, each of whose threads takes at least one element."""
        blocks = max(1, min(MOST_BLOCKS, ceil_div(elements, THREADS)))
        self._kernels[kernel].enqueue((blocks, 1, 1), (THREADS, 1, 1), *arguments)


def stored_bits(value: float, type: str) -> int:
    """The bits of a number that an element type holds."""
    if type in ("f16", "e5m2"):
        half = int(np.float16(value).view(np.uint16))
        return half if type == "f16" else half >> 8
    if type == "e4m3":
        return E4M3_BITS[str(value)]
    if type == "i8":
        return int(value) & 0xFF
    bits = int(np.float32(value).view(np.uint32))
    return bits if type == "f32" else bits >> 16


def templates_of(problem: Problem) -> dict[Kernel, Template]:
    """The kernels of `verify.cu` for a problem."""
    type_a, type_b, output = each_type(problem)
    of_results = problem.output_type, problem.bias_element.name
    types = dict.fromkeys(("f32", *problem.operand_types, *of_results))
    sides = {"a": (("TYPE", type_a[1]), ("B", 0)), "b": (("TYPE", type_b[1]), ("B", 1))}
    scaled, after = scale(problem), epilogue(problem)
    arguments: dict[Kernel, tuple[tuple[str, Constant], ...]] = {
        ("reference", ""): (type_a, type_b, scaled, *transposes(problem)),
        ("compare", ""): (output, after),
        ("compare_exact", ""): (output, after, scaled),
        **{("fill_exact", side): constants for side, constants in sides.items()},
    }
    for type in types:
        number = "TYPE", ELEMENT_TYPES[type].number
        arguments["fill", type], arguments["check", type] = (number,), (number,)
    if problem.scale_shapes is not None:
        arguments |= {("fill_scales", side): (which,) for side, (_, which) in sides.items()}
    return {kernel: Template("verify.cu", kernel[0], each) for kernel, each in arguments.items()}


def _compiled(
    templates: Mapping[Kernel, Template], arch: str, cache: Path | None
) -> dict[Kernel, Program]:
    """The programs of all templates, compiled in parallel: the first candidate waits for them."""
    with ThreadPoolExecutor(len(templates), "compile") as pool:
        programs = pool.map(lambda each: program_of(each, arch, cache), templates.values())
        return dict(zip(templates, programs, strict=True))


def program_of(template: Template, arch: str, cache: Path | None) -> Program:
    """The program of a kernel of the package, compiled in this process through `cache`.

    Raises:
        MissingError: without a compiler.
        RunnerError: if it does not compile.
    """
    program = compile(template, arch, cache=cache, here=True)
    if isinstance(program, CompileFailure):
        raise RunnerError(f"{template.source}: {template.expression}: {program.reason}")
    return program
