"""Whether a kernel computes the product, and writes nowhere else (`cuda_src/verify.cu`)."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune.compiler import CompileFailure, Program, compile
from autotune.driver.arguments import Values
from autotune.errors import RunnerError
from autotune.families.plan import ArgumentType, Template
from autotune.families.shared.arguments import epilogue, transposes, type_arguments
from autotune.gpu.operands import Matrix, Operands
from autotune.gpu.session import LoadedKernel, Run, Session
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.runners.base import Failure
from autotune.verification import oracle


@dataclass(frozen=True)
class Demand:
    """What is asked of a kernel.

    Attributes:
        scalings: alpha and beta of its two runs.
        tolerance: the largest error of an element, for a problem, alpha and beta.
    """

    scalings: tuple[tuple[float, float], tuple[float, float]]
    tolerance: Callable[[Problem, float, float], float]


KERNEL = Demand(((0.75, -0.5), (1.0, 0.0)), oracle.tolerance)
"""C must be read in the first run and must not be in the second."""
PLAIN = Demand(((1.0, 0.0),) * 2, oracle.library_tolerance)
"""For a library that computes the product and the epilogue, one after the other."""
RUNS = 2

# As in verify.cu.
THREADS, TILE, DEPTH = 256, 64, 16
REDUCTION_SHARED = 8 * THREADS
REFERENCE_SHARED = 8 * 2 * DEPTH * (TILE + 1)
POISONED, NORMAL, ZERO = 0, 1, 2

BLOCKS = 1024  # fills any GPU

# Results, in doubles: of each run the elements changed in and around what it may write, and what
# `compare` found; at last the elements changed in what is only read.
WRITTEN = ("around C", "around the workspace", "in or around the counters, which stay zero")
READ = ("in or around A", "in or around B", "in or around the bias")
A_RUN = len(WRITTEN) + 4
RESULTS = RUNS * A_RUN + len(READ)

REGION: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "i64", "i64"),
    *("i64", "i64", "i64", "i32", "i64"),
)
REFERENCE: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "pointer", "i64", "pointer"),
    *("i32", "i32", "i32", "i64", "i64", "i64"),
)
COMPARE: tuple[ArgumentType, ...] = (
    *("pointer", "pointer", "i64", "i64", "i32", "i32", "i32"),
    *("f32", "f32", "pointer", "i64", "f32", "f32", "pointer"),
)


@dataclass(frozen=True)
class Verdict:
    """How far a correct kernel was from the float64 reference in its last run.

    Attributes:
        error: largest absolute error of an element, less what rounding to C's type may do.
        tolerance: what it was allowed to be.
        relative: Frobenius norm of the error over that of the reference.
        time_us: how long the faster of the runs took; launches and a cold L2 are part of it.
    """

    error: float
    tolerance: float
    relative: float
    time_us: float


class Verifier:
    """Checks kernels of one problem against a float64 product on the device.

    A, B, the bias and the product stay the same from kernel to kernel until `refresh`. No kernel
    gains by that: each time, C and the workspace are poisoned with NaN where they hold no input, C
    gets new numbers where it is one, and every element of all buffers and of their guards is looked
    at afterwards. A kernel that damages what is kept fails by that itself, and then all is made
    anew.
    """

    def __init__(self, session: Session, operands: Operands, cache: Path | None) -> None:
        """Compiles and loads the kernels.

        Raises:
            MissingError: without a compiler.
            RunnerError: if a kernel does not compile.
        """
        self._session = session
        self._operands = operands
        self._results = session.allocate(8 * RESULTS)
        self._read = operands.a, operands.b, operands.bias
        self._seeds = (0, 0, 0)  # of these
        self._stale = True
        problem = operands.problem
        operand, output = type_arguments(problem)
        kinds: tuple[str, ...] = ("f32", problem.operand_type, problem.output_type)
        fills, checks = (
            {
                kind: Template("verify.cu", name, (("TYPE", ELEMENT_TYPES[kind].number),))
                for kind in kinds
            }
            for name in ("fill", "check")
        )
        multiply = Template("verify.cu", "reference", (operand, *transposes(problem)))
        comparison = Template("verify.cu", "compare", (output, epilogue(problem)))
        templates = (*fills.values(), *checks.values(), multiply, comparison)
        programs = _compiled(templates, session.device.arch, cache)

        def load(
            template: Template, types: tuple[ArgumentType, ...], shared: int = REDUCTION_SHARED
        ) -> LoadedKernel:
            return session.load(programs[template], types, shared)

        self._fills = {kind: load(one, REGION) for kind, one in fills.items()}
        self._checks = {kind: load(one, (*REGION, "pointer")) for kind, one in checks.items()}
        self._reference = load(multiply, REFERENCE, REFERENCE_SHARED)
        self._compare = load(comparison, COMPARE)

    def refresh(self) -> None:
        """Draws new operands and puts their product on the stream."""
        self._seeds = secrets.randbits(62), secrets.randbits(62), secrets.randbits(62)
        for matrix, seed in zip(self._read, self._seeds, strict=True):
            self._fill(matrix, NORMAL, seed)
        self._multiply()
        self._stale = False

    def verify(
        self,
        bound: Callable[[Values], Run],
        demand: Demand = KERNEL,
    ) -> Verdict | Failure:
        """Runs a kernel for both pairs of alpha and beta; the verdict is that of the last one.

        Afterwards A, B and the bias hold normal numbers and C whatever the kernel put there.

        Raises:
            pycuda.driver.Error: if a launch fails.
        """
        if self._stale:
            self.refresh()
        self._stale = True  # unless it ends well
        operands, seed = self._operands, secrets.randbits(62)
        self._session.cuda.memset_d32_async(
            int(self._results), 0, 2 * RESULTS, self._session.stream
        )
        marks = []
        for i, (alpha, beta) in enumerate(demand.scalings):
            self._fill(operands.c, NORMAL if beta else POISONED, seed)
            self._fill(operands.workspace, POISONED)
            self._fill(operands.counters, ZERO)
            run = bound(operands.values(alpha, beta))
            began = self._session.mark()
            run()
            marks.append((began, self._session.mark()))
            tolerance = demand.tolerance(operands.problem, alpha, beta)
            self._examine(alpha, beta, tolerance, seed, self._place(A_RUN * i))
        for i, (matrix, number) in enumerate(zip(self._read, self._seeds, strict=True)):
            self._check(matrix, NORMAL, number, self._place(A_RUN * RUNS + i))
        results = np.empty(RESULTS)
        self._session.synchronize()
        self._session.cuda.memcpy_dtoh(results, int(self._results))
        time_us = min(1e3 * began.time_till(ended) for began, ended in marks)
        outcome = self._judged(results, demand, time_us)
        self._stale = isinstance(outcome, Failure)
        return outcome

    def _examine(self, alpha: float, beta: float, tolerance: float, seed: int, place: int) -> None:
        """Puts on the stream what adds up the results of one run, from `place` on."""
        operands, problem = self._operands, self._operands.problem
        written = (
            (operands.c, POISONED),
            (operands.workspace, POISONED),
            (operands.counters, ZERO),
        )
        for i, (matrix, content) in enumerate(written):
            self._check(matrix, content, 0, place + 8 * i)
        self._elementwise(
            self._compare,
            *(int(operands.product), operands.c.address),
            *(operands.leading_dimensions[2], operands.strides[2]),
            *(problem.m, problem.n, problem.batch, alpha, beta, operands.bias.address),
            *(seed, oracle.roundoff(problem), tolerance, place + 8 * len(written)),
        )

    def _judged(
        self, results: NDArray[np.float64], demand: Demand, time_us: float
    ) -> Verdict | Failure:
        problem = self._operands.problem
        if failure := _strays(results[-len(READ) :], READ):
            return failure
        runs = results[: A_RUN * RUNS].reshape(RUNS, A_RUN)
        for (alpha, beta), run in zip(demand.scalings, runs, strict=True):
            scaling = f"(alpha={alpha:g}, beta={beta:g})"
            if failure := _strays(run, WRITTEN, f" {scaling}"):
                return failure
            error, wrong, difference, square = run[len(WRITTEN) :].tolist()
            if not error <= (tolerance := demand.tolerance(problem, alpha, beta)):
                return Failure(
                    "verify",
                    f"wrong result: largest error {error:.3g}, tolerance {tolerance:.3g}, exceeded "
                    f"by {wrong:.0f} of {problem.batch * problem.m * problem.n} elements {scaling}",
                )
        return Verdict(error, tolerance, math.sqrt(difference / square) if square else 0.0, time_us)

    def _multiply(self) -> None:
        """The float64 product of A and B, with K split where C has few tiles."""
        operands, sms = self._operands, self._session.device.sms
        problem, product = operands.problem, int(operands.product)
        tiles = -(-problem.m // TILE) * -(-problem.n // TILE)
        splits = max(1, min(4 * sms // (tiles * problem.batch), problem.k // 256))
        chunk = DEPTH * math.ceil(problem.k / splits / DEPTH)
        words = 2 * problem.batch * problem.m * problem.n
        self._session.cuda.memset_d32_async(product, 0, words, self._session.stream)
        self._reference.enqueue(
            (tiles, -(-problem.k // chunk), problem.batch),
            (THREADS, 1, 1),
            *(operands.a.address, operands.a.leading_dimension),
            *(operands.b.address, operands.b.leading_dimension),
            *(product, problem.m, problem.n, problem.k, chunk),
            *(operands.strides[0], operands.strides[1]),
        )

    def _fill(self, matrix: Matrix, content: int, seed: int = 0) -> None:
        self._elementwise(self._fills[matrix.type], *matrix.region, content, seed)

    def _check(self, matrix: Matrix, content: int, seed: int, place: int) -> None:
        self._elementwise(self._checks[matrix.type], *matrix.region, content, seed, place)

    def _elementwise(self, kernel: LoadedKernel, *arguments: int | float) -> None:
        kernel.enqueue((BLOCKS, 1, 1), (THREADS, 1, 1), *arguments)

    def _place(self, index: int) -> int:
        return int(self._results) + 8 * index


def _compiled(
    templates: Sequence[Template], arch: str, cache: Path | None
) -> dict[Template, Program]:
    """The programs of all, compiled at once: the first candidate waits for them."""
    with ThreadPoolExecutor(len(templates), "compile") as pool:
        made = list(pool.map(lambda template: compile(template, arch, cache=cache), templates))
    programs = dict[Template, Program]()
    for template, program in zip(templates, made, strict=True):
        if isinstance(program, CompileFailure):
            raise RunnerError(f"verify.cu: {template.expression}: {program.reason}")
        programs[template] = program
    return programs


def _strays(
    counts: NDArray[np.float64], places: Sequence[str], scaling: str = ""
) -> Failure | None:
    found = [
        f"{count:.0f} elements {place}"
        for count, place in zip(counts, places, strict=False)
        if count
    ]
    if not found:
        return None
    return Failure("verify", f"stray writes: changed {' and '.join(found)}{scaling}")
