"""Launches of the verification kernels (`cuda_src/verify.cu`) on the operands of one problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np

from autotune.cuda.compiler import compile
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import RunnerError
from autotune.families.plan import ArgumentType, Template
from autotune.gpu.guarded import GuardedMatrix
from autotune.gpu.operands import Operands
from autotune.gpu.session import LoadedKernel, Session
from autotune.gpu.verify_templates import templates_of
from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK
from autotune.problem.integers import ceil_div
from autotune.verification import exact
from autotune.verification.exact import Draw, Special

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
FACTORS: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i64", "i64", "i64", "i64"),
    *("i32", "i32", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64"),
)
SCALE_FACTORS: tuple[ArgumentType, ...] = ("pointer", "i64", "i64", "i64", "i64")
REFERENCE: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "pointer", "i64", "pointer", "pointer", "pointer"),
    *("i32", "i32", "i32", "i64", "i64", "i64"),
)
COMPARE: tuple[ArgumentType, ...] = (
    *("pointer", "pointer", "i64", "i64", "i32", "i32", "i32"),
    *("f32", "f32", "pointer", "pointer", "i64", "i64"),
    *("f32", "i64", "f32", "f32", "pointer"),
)
EXACT: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i32", "i32", "i32", "i32", "i32", "f32", "f32"),
    *("i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "f32", "i32", "f32", "f32"),
    *("pointer", "pointer", "i32", "i64", "i64", "i64", "f32", "pointer", "pointer"),
)


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
        programs = _compiled(templates.all, session.device.arch, cache)

        def load(
            template: Template, arguments: tuple[ArgumentType, ...], shared: int = REDUCTION_SHARED
        ) -> LoadedKernel:
            return session.load(programs[template], arguments, shared)

        self._fills = {
            type: load(template, (*REGION, "i32")) for type, template in templates.fills.items()
        }
        self._checks = {
            type: load(template, (*REGION, "pointer"))
            for type, template in templates.checks.items()
        }
        self._reference = load(templates.reference, REFERENCE, REFERENCE_SHARED)
        self._compare = load(templates.compare, COMPARE)
        self._compare_exact = load(templates.compare_exact, EXACT)
        self._factors = [load(template, FACTORS) for template in templates.factors]
        self._scale_factors = [load(template, SCALE_FACTORS) for template in templates.scales]

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
        fill, blocks = self._fills[matrix.type], _blocks(matrix.guarded_length)
        self._launch(fill, blocks, *matrix.region, content, seed, size, int(guards))

    def fill_factors(self, draw: Draw) -> None:
        """Fills the rows of A and B with the integers of an exact product, and their scales."""
        operands = self._operands
        k_down = (operands.problem.layout[0] == "t", operands.problem.layout[1] == "n")
        sides = ((operands.a, draw.a), (operands.b, draw.b))
        for kernel, (matrix, seed), down in zip(self._factors, sides, k_down, strict=True):
            self._launch(
                *(kernel, _blocks(matrix.length), *matrix.region),
                *(int(matrix.side_by_side), int(down), matrix.rows),
                *(*astuple(draw.pairing), seed),
            )
        scales = (operands.scale_a, draw.scale_a), (operands.scale_b, draw.scale_b)
        for kernel, (scale, seed) in zip(self._scale_factors, scales, strict=False):
            self._launch(
                *(kernel, _blocks(scale.vector.length), scale.vector.address),
                *(scale.count, scale.blocks, scale.batch, seed),
            )

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
        scale_c, amax = self._operands.result_addresses
        self._session.fill(scale_c, stored_bits(scale, "f32"), 1)
        self._session.fill(amax, 0, 1)

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
        check, blocks = self._checks[matrix.type], _blocks(matrix.guarded_length)
        self._launch(check, blocks, *matrix.region, content, seed, size, place)

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
        self._launch(
            *(self._compare, _blocks(problem.batch * problem.m * problem.width)),
            *(int(operands.reference), operands.c.address),
            *(operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, alpha, beta, operands.bias.address),
            *operands.residual_arguments,
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
        slack = exact.slack(problem, special)
        special = Special(0.0) if special is None or special.scale else special
        row, column = (-1 if at is None else at for at in (special.row, special.column))
        self._launch(
            *(self._compare_exact, _blocks(problem.batch * problem.m * problem.width)),
            *(operands.c.address, operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, operands.a.batch, operands.b.batch),
            *(alpha, beta, draw.a, draw.b, draw.c, draw.bias),
            *(draw.pairing.first, draw.pairing.terms, row, column, special.value),
            *(int(problem.precision.products > 1), tolerance, slack, *operands.scale_addresses),
            *(problem.k, draw.residual, *operands.residual_arguments[1:]),
            *(operands.scale_of_c, operands.result_addresses[1], place),
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
        self._reference.enqueue(
            (tiles, ceil_div(problem.k, chunk), problem.batch),
            (THREADS, 1, 1),
            *(operands.a.address, operands.a.leading_dimension),
            *(operands.b.address, operands.b.leading_dimension),
            *operands.scale_addresses,
            *(reference, problem.m, problem.n, problem.k, chunk),
            *(operands.strides[0], operands.strides[1]),
        )

    def _launch(self, kernel: LoadedKernel, blocks: int, *arguments: int | float) -> None:
        kernel.enqueue((blocks, 1, 1), (THREADS, 1, 1), *arguments)


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


def _blocks(elements: int) -> int:
    """Blocks of an elementwise launch: each thread takes at least one element."""
    return max(1, min(MOST_BLOCKS, ceil_div(elements, THREADS)))


def _compiled(
    templates: Sequence[Template], arch: str, cache: Path | None
) -> dict[Template, Program]:
    """The programs of all templates, compiled in parallel: the first candidate waits for them."""
    with ThreadPoolExecutor(len(templates), "compile") as pool:
        outcomes = list(
            pool.map(lambda template: compile(template, arch, cache=cache, here=True), templates)
        )
    programs = dict[Template, Program]()
    for template, program in zip(templates, outcomes, strict=True):
        if isinstance(program, CompileFailure):
            raise RunnerError(f"verify.cu: {template.expression}: {program.reason}")
        programs[template] = program
    return programs
