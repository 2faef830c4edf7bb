"""Whether a kernel computes the product, and writes nowhere else (`cuda_src/verify.cu`)."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autotune import reference
from autotune.compiler import CompileFailure, compile
from autotune.errors import RunnerError
from autotune.gpu.operands import Operands
from autotune.gpu.session import Kernel, Run, Session, Values
from autotune.plan import ArgumentType, Template
from autotune.runner import Failure

SCALINGS = ((1.0, 0.0), (0.75, -0.5))
"""alpha and beta of the two checks: C must not be read in the first and must be in the second."""

# As in verify.cu.
THREADS, TILE, DEPTH = 256, 64, 16
REDUCTION_SHARED = 8 * THREADS
REFERENCE_SHARED = 8 * 2 * DEPTH * (TILE + 1)

BLOCKS = 1024  # fills any GPU; each block leaves its part of a sum in the results
RESULTS = 8 * BLOCKS  # doubles: a count for each of four buffers, then four of `compare`

REGION: tuple[ArgumentType, ...] = ("pointer", "i64", "i64", "i64", "i64", "i64")
REFERENCE: tuple[ArgumentType, ...] = (
    *("pointer", "i64", "pointer", "i64", "pointer"),
    *("i32", "i32", "i32", "i64"),
)
COMPARE: tuple[ArgumentType, ...] = (
    *("pointer", "pointer", "i64", "i32", "i32"),
    *("f32", "f32", "i64", "f32", "pointer"),
)


@dataclass(frozen=True)
class Verdict:
    """How far a correct kernel was from the float64 reference.

    Attributes:
        error: largest absolute error of an element.
        tolerance: what it was allowed to be.
        relative: Frobenius norm of the error over that of the reference.
    """

    error: float
    tolerance: float
    relative: float


class Verifier:
    """Checks kernels of one problem against a float64 product on the device.

    Every check draws fresh normal operands, poisons C and the workspace with NaN where they hold
    no input, and afterwards looks at every word of the four buffers and of their guards.
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
        transposes = (int(letter == "t") for letter in operands.problem.layout)
        layout = tuple(zip(("TRANS_A", "TRANS_B"), transposes, strict=True))

        def load(
            template: Template, types: tuple[ArgumentType, ...], shared: int = REDUCTION_SHARED
        ) -> Kernel:
            program = compile(template, session.device.arch, cache=cache)
            if isinstance(program, CompileFailure):
                raise RunnerError(f"verify.cu: {template.expression}: {program.reason}")
            return session.load(program, types, shared)

        self._poison, self._randomise = (
            load(Template("verify.cu", "fill", (("RANDOM", i),)), REGION) for i in (0, 1)
        )
        self._check_around, self._check_all = (
            load(Template("verify.cu", "check", (("FIXED", i),)), (*REGION, "pointer"))
            for i in (0, 1)
        )
        multiply = Template("verify.cu", "reference", layout)
        self._reference = load(multiply, REFERENCE, REFERENCE_SHARED)
        self._compare = load(Template("verify.cu", "compare"), COMPARE)

    def verify(
        self,
        bound: Callable[[Values], Run],
        scalings: Sequence[tuple[float, float]] = SCALINGS,
    ) -> Verdict | Failure:
        """Runs a kernel once for each (alpha, beta); the verdict is that of the first pair.

        Afterwards A and B hold normal numbers and C whatever the kernel put there.

        Raises:
            pycuda.driver.Error: if a launch fails.
        """
        operands = self._operands
        seeds = [secrets.randbits(62) for _ in range(3)]
        self._elementwise(self._randomise, *operands.a.region, seeds[0])
        self._elementwise(self._randomise, *operands.b.region, seeds[1])
        self._multiply()
        verdicts = []
        for alpha, beta in scalings:
            fill = self._randomise if beta else self._poison
            self._elementwise(fill, *operands.c.region, seeds[2])
            self._elementwise(self._poison, *operands.workspace.region, 0)
            bound(operands.values(alpha, beta))()
            verdict = self._judged(alpha, beta, seeds)
            if isinstance(verdict, Failure):
                return verdict
            verdicts.append(verdict)
        return verdicts[0]

    def _elementwise(self, kernel: Kernel, *arguments: int | float) -> None:
        kernel.enqueue((BLOCKS, 1, 1), (THREADS, 1, 1), *arguments)

    def _multiply(self) -> None:
        """The float64 product of A and B, with K split where C has few tiles."""
        operands, sms = self._operands, self._session.device.sms
        problem, product = operands.problem, int(operands.product)
        tiles = -(-problem.m // TILE) * -(-problem.n // TILE)
        splits = max(1, min(4 * sms // tiles, problem.k // 256))
        chunk = DEPTH * math.ceil(problem.k / splits / DEPTH)
        words = 2 * problem.m * problem.n
        self._session.cuda.memset_d32_async(product, 0, words, self._session.stream)
        self._reference.enqueue(
            (tiles, -(-problem.k // chunk), 1),
            (THREADS, 1, 1),
            *(operands.a.address, operands.a.leading_dimension),
            *(operands.b.address, operands.b.leading_dimension),
            *(product, problem.m, problem.n, problem.k, chunk),
        )

    def _judged(self, alpha: float, beta: float, seeds: Sequence[int]) -> Verdict | Failure:
        problem = self._operands.problem
        tolerance = reference.tolerance(problem, alpha, beta)
        results = self._examined(alpha, beta, seeds, tolerance)
        strays = results[: 4 * BLOCKS].reshape(4, BLOCKS).sum(axis=1)
        parts = results[4 * BLOCKS :].reshape(BLOCKS, 4)
        error = float(parts[:, 0].max())
        wrong, difference, square = parts[:, 1:].sum(axis=0)
        scaling = f"(alpha={alpha:g}, beta={beta:g})"
        if strays.any():
            places = ("in or around A", "in or around B", "around C", "around the workspace")
            found = zip(strays, places, strict=True)
            words = " and ".join(f"{count:.0f} words {place}" for count, place in found if count)
            return Failure("verify", f"stray writes: changed {words} {scaling}")
        if not error <= tolerance:
            return Failure(
                "verify",
                f"wrong result: largest error {error:.3g}, tolerance {tolerance:.3g}, exceeded by "
                f"{wrong:.0f} of {problem.m * problem.n} elements {scaling}",
            )
        return Verdict(error, tolerance, math.sqrt(difference / square) if square else 0.0)

    def _examined(
        self, alpha: float, beta: float, seeds: Sequence[int], tolerance: float
    ) -> NDArray[np.float64]:
        """What `check` finds in A, B, C and the workspace, and `compare` in C, by block."""
        operands, problem = self._operands, self._operands.problem
        start = int(self._results)
        checks = (
            (self._check_all, operands.a, seeds[0]),
            (self._check_all, operands.b, seeds[1]),
            (self._check_around, operands.c, 0),
            (self._check_around, operands.workspace, 0),
        )
        for i, (check, matrix, seed) in enumerate(checks):
            self._elementwise(check, *matrix.region, seed, start + 8 * BLOCKS * i)
        self._elementwise(
            self._compare,
            *(int(operands.product), operands.c.address, operands.c.leading_dimension),
            *(problem.m, problem.n, alpha, beta, seeds[2], tolerance),
            start + 8 * BLOCKS * len(checks),
        )
        results = np.empty(RESULTS)
        self._session.synchronize()
        self._session.cuda.memcpy_dtoh(results, start)
        return results
