"""Launches of the verification kernels (`cuda_src/verify.cu`) on the operands of one problem."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np

from autotune.compiler import CompileFailure, Program, compile
from autotune.errors import RunnerError
from autotune.families.plan import ArgumentType, Template
from autotune.families.shared.arguments import epilogue, transposes, type_arguments
from autotune.gpu.operands import GuardedMatrix, Operands
from autotune.gpu.session import LoadedKernel, Session
from autotune.problem import ELEMENT_TYPES
from autotune.problem.integers import ceil_div
from autotune.verification.exact import Draw, Special

# As in verify.cu.
THREADS, TILE, DEPTH = 256, 64, 16
REDUCTION_SHARED = 8 * THREADS
REFERENCE_SHARED = 8 * 2 * DEPTH * (TILE + 1)
POISONED, NORMAL, ZERO, RAISED, LOWERED, EVEN = range(6)
POISON: Mapping[int, int] = {4: 0x7FFFDEAD, 2: 0x7FED}
"""Bits of the NaN in guards, gaps and what has to be overwritten, by the bytes of an element."""

MOST_BLOCKS = 1024  # fills any GPU; smaller buffers take fewer
MEMSET_LIMIT = 2**31  # elements; PyCUDA takes 32-bit counts

REGION: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i64"),
    *("i64", "i64", "i64", "i32", "i64"),
)
FACTORS: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i64", "i64", "i64", "i64"),
    *("i32", "i32", "i64", "i64", "i64", "i64", "i64", "i64", "i64"),
)
REFERENCE: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "pointer", "i64", "pointer"),
    *("i32", "i32", "i32", "i64", "i64", "i64"),
)
COMPARE: tuple[ArgumentType, ...] = (
    *("pointer", "pointer", "i64", "i64", "i32", "i32", "i32"),
    *("f32", "f32", "pointer", "i64", "f32", "f32", "pointer"),
)
EXACT: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i32", "i32", "i32", "i32", "i32", "f32", "f32"),
    *("i64", "i64", "i64", "i64", "i64", "i64", "i64", "i64", "f32", "i32", "f32", "pointer"),
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
        problem = operands.problem
        operand, output = type_arguments(problem)
        types = dict.fromkeys(("f32", *problem.operand_types, problem.output_type))
        fills, checks = (
            {
                type: Template("verify.cu", name, (("TYPE", ELEMENT_TYPES[type].number),))
                for type in types
            }
            for name in ("fill", "check")
        )
        reference = Template("verify.cu", "reference", (operand, *transposes(problem)))
        compare = Template("verify.cu", "compare", (output, epilogue(problem)))
        exact = Template("verify.cu", "compare_exact", (output, epilogue(problem)))
        factors = [Template("verify.cu", "fill_exact", (operand, ("B", b))) for b in (0, 1)]
        templates = (*fills.values(), *checks.values(), reference, compare, exact, *factors)
        programs = _compiled(templates, session.device.arch, cache)

        def load(
            template: Template, arguments: tuple[ArgumentType, ...], shared: int = REDUCTION_SHARED
        ) -> LoadedKernel:
            return session.load(programs[template], arguments, shared)

        self._fills = {type: load(template, (*REGION, "i32")) for type, template in fills.items()}
        self._checks = {
            type: load(template, (*REGION, "pointer")) for type, template in checks.items()
        }
        self._reference = load(reference, REFERENCE, REFERENCE_SHARED)
        self._compare = load(compare, COMPARE)
        self._compare_exact = load(exact, EXACT)
        self._factors = [load(template, FACTORS) for template in factors]

    def fill(
        self, matrix: GuardedMatrix, content: int, seed: int = 0, *, guards: bool = True
    ) -> None:
        """Fills rows with `content`, drawn from `seed`, and, if `guards`, all else with poison."""
        blocks = _blocks(matrix.guarded_length)
        self._launch(self._fills[matrix.type], blocks, *matrix.region, content, seed, int(guards))

    def fill_factors(self, draw: Draw) -> None:
        """Fills the rows of A and B with the integers of an exact product."""
        operands = self._operands
        k_down = (operands.problem.layout[0] == "t", operands.problem.layout[1] == "n")
        sides = ((operands.a, draw.a), (operands.b, draw.b))
        for kernel, (matrix, seed), down in zip(self._factors, sides, k_down, strict=True):
            self._launch(
                *(kernel, _blocks(matrix.length), *matrix.region),
                *(int(matrix.side_by_side), int(down), matrix.rows),
                *(*astuple(draw.pairing), seed),
            )

    def place_special(self, special: Special, place: int) -> None:
        """Stores the value in the first matrix of A or B, at `place` of K."""
        operands, layout = self._operands, self._operands.problem.layout
        if special.row is not None:
            matrix, row, column = operands.a, special.row, place
        else:
            matrix, row, column = operands.b, place, special.column or 0
        if layout[matrix is operands.b] == "t":
            row, column = column, row
        size = ELEMENT_TYPES[matrix.type].bytes
        address = matrix.address + size * (row * matrix.leading_dimension + column)
        cuda = self._session.cuda
        memset = cuda.memset_d32_async if size == 4 else cuda.memset_d16_async
        memset(address, _stored_bits(special.value, matrix.type), 1, self._session.stream)

    def poison(self, matrix: GuardedMatrix) -> None:
        """Fills a whole buffer, guards included, with poison; the bits that `fill` writes."""
        size = ELEMENT_TYPES[matrix.type].bytes
        if size not in POISON or matrix.guarded_length >= MEMSET_LIMIT:
            self.fill(matrix, POISONED)
            return
        # A memset costs the host a fraction of a kernel launch.
        cuda = self._session.cuda
        memset = cuda.memset_d32_async if size == 4 else cuda.memset_d16_async
        memset(int(matrix.allocation), POISON[size], matrix.guarded_length, self._session.stream)

    def clear(self, words: GuardedMatrix) -> None:
        """Zeroes a vector of 4-byte words and leaves its guards."""
        self._session.cuda.memset_d32_async(words.address, 0, words.length, self._session.stream)

    def check(self, matrix: GuardedMatrix, content: int, seed: int, place: int) -> None:
        """Adds to the double at `place` how many elements are not what was filled in.

        Guards and gaps have to hold poison; rows have to hold `content`, for POISONED anything.
        """
        blocks = _blocks(matrix.guarded_length)
        self._launch(self._checks[matrix.type], blocks, *matrix.region, content, seed, place)

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
            *(self._compare, _blocks(problem.batch * problem.m * problem.n)),
            *(int(operands.reference), operands.c.address),
            *(operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, alpha, beta, operands.bias.address),
            *(seed, roundoff, tolerance, place),
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
        """Adds to the two doubles from `place` on how far C is from the exact product."""
        operands, problem = self._operands, self._operands.problem
        special = special or Special(0.0)
        row, column = (-1 if at is None else at for at in (special.row, special.column))
        self._launch(
            *(self._compare_exact, _blocks(problem.batch * problem.m * problem.n)),
            *(operands.c.address, operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, operands.a.batch, operands.b.batch),
            *(alpha, beta, draw.a, draw.b, draw.c, draw.bias),
            *(draw.pairing.first, draw.pairing.terms, row, column, special.value),
            *(int(problem.precision.products > 1), tolerance, place),
        )

    def multiply(self) -> None:
        """Computes the float64 product of A and B; K is split where C has few tiles."""
        operands, sms = self._operands, self._session.device.sms
        problem, reference = operands.problem, int(operands.reference)
        tiles = ceil_div(problem.m, TILE) * ceil_div(problem.n, TILE)
        splits = max(1, min(4 * sms // (tiles * problem.batch), problem.k // 256))
        chunk = DEPTH * math.ceil(problem.k / splits / DEPTH)
        words = 2 * problem.batch * problem.m * problem.n
        self._session.cuda.memset_d32_async(reference, 0, words, self._session.stream)
        self._reference.enqueue(
            (tiles, ceil_div(problem.k, chunk), problem.batch),
            (THREADS, 1, 1),
            *(operands.a.address, operands.a.leading_dimension),
            *(operands.b.address, operands.b.leading_dimension),
            *(reference, problem.m, problem.n, problem.k, chunk),
            *(operands.strides[0], operands.strides[1]),
        )

    def _launch(self, kernel: LoadedKernel, blocks: int, *arguments: int | float) -> None:
        kernel.enqueue((blocks, 1, 1), (THREADS, 1, 1), *arguments)


def _stored_bits(value: float, type: str) -> int:
    """The bits of a number in an element type; a denormal fp32 number is one of bfloat16 too."""
    if type == "f16":
        return int(np.float16(value).view(np.uint16))
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
        outcomes = list(pool.map(lambda template: compile(template, arch, cache=cache), templates))
    programs = dict[Template, Program]()
    for template, program in zip(templates, outcomes, strict=True):
        if isinstance(program, CompileFailure):
            raise RunnerError(f"verify.cu: {template.expression}: {program.reason}")
        programs[template] = program
    return programs
