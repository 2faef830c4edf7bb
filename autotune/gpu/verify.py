"""Verification: whether a kernel computes the right C and writes nowhere else."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.driver.arguments import Values
from autotune.gpu.findings import Findings
from autotune.gpu.judgement import (
    ERRORS,
    READ,
    WRITTEN,
    Verdict,
    VerifiedRun,
    described,
    first_failure,
    stray_writes,
)
from autotune.gpu.operands import GuardedMatrix, Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.verify_kernels import (
    EVEN,
    LOWERED,
    NORMAL,
    POISONED,
    RAISED,
    ZERO,
    VerifyKernels,
)
from autotune.problem import Problem
from autotune.runners.base import Failure
from autotune.verification import exact, oracle
from autotune.verification.exact import Draw, Special

COMPARED = 50
"""Launches that cancel out before C is compared with what it was."""

Bind = Callable[[Values], Run]
"""Makes a run with the given argument values."""


@dataclass(frozen=True)
class Requirements:
    """Requirements that a kernel has to fulfil.

    Attributes:
        exact: alpha and beta of products of small integers, which have to be right bit for bit.
        scalings: alpha and beta of products of normal numbers; the verdict is that of the last.
        tolerance: the largest error allowed there in an element, for a problem, alpha and beta.
        specials: whether infinities, NaN and denormal numbers have to stay where they belong.
    """

    exact: tuple[tuple[float, float], ...]
    scalings: tuple[tuple[float, float], ...]
    tolerance: Callable[[Problem, float, float], float]
    specials: bool = False


KERNEL = Requirements(((exact.ALPHA, -1.0),), ((1.0, 0.0),), oracle.tolerance)
"""For a kernel: it has to read C in the first run and must not read it in the second."""
THOROUGH = Requirements(
    ((exact.ALPHA, 1.0),), ((0.75, -0.5), (0.0, 1.0), (1.0, 0.0)), oracle.tolerance, specials=True
)
"""For a kernel that is about to be recorded."""
LIBRARY = Requirements((), ((1.0, 0.0),) * 2, oracle.library_tolerance)
"""For a library, which computes the product and the epilogue one after the other."""


class Verifier:
    """Checks kernels of one problem, on small integers and against a float64 reference.

    The normal numbers and their reference stay until `refresh`; the integers are drawn anew for
    each kernel. No kernel can profit: before each run C and the workspace are poisoned with NaN or,
    where C is an input, get new numbers, and afterwards every element of all buffers and of their
    guards is checked. A kernel that damages the operands fails, and then they are drawn anew.
    """

    def __init__(self, session: Session, operands: Operands, cache: Path | None) -> None:
        """Compiles and loads the kernels.

        Raises:
            MissingError: without a compiler.
            RunnerError: if a kernel does not compile.
        """
        self._session = session
        self._operands = operands
        self._kernels = VerifyKernels(session, operands, cache)
        self._findings = Findings(session)
        self._read = operands.a, operands.b, operands.bias
        self._seeds = (0, 0, 0)  # of the normal numbers in `_read`
        self._stale = True

    def refresh(self) -> None:
        """Draws new operands and enqueues their reference."""
        self._seeds = secrets.randbits(62), secrets.randbits(62), secrets.randbits(62)
        self._restore(guards=True)
        self._kernels.multiply()
        self._stale = False

    def verify(self, bind: Bind, requirements: Requirements = KERNEL) -> Verdict | Failure:
        """Runs a kernel as the requirements say; the verdict is that of the last run.

        Afterwards A, B and the bias hold normal numbers and C holds the kernel's last result.

        Raises:
            pycuda.driver.Error: if a launch fails.
        """
        self._begin()
        problem = self._operands.problem
        marks: list[tuple[Any, Any]] = []
        checks = [self._exact(bind, scaling, None, marks) for scaling in requirements.exact]
        if requirements.specials:
            checks += [
                self._exact(bind, (exact.ALPHA, 1.0), special, marks)
                for special in exact.specials(problem)
            ]
        if checks:
            self._restore()
        for scaling in requirements.scalings:
            tolerance = requirements.tolerance(problem, *scaling)
            checks.append(self._rounded(bind, scaling, tolerance, marks))
        read = self._check_read()
        findings = self._findings.read()
        failure = stray_writes(findings[read:], READ) or first_failure(problem, checks, findings)
        self._stale = failure is not None
        if failure:
            return failure
        error, _, difference, square = findings[checks[-1].place + len(WRITTEN) :][:ERRORS]
        relative = math.sqrt(difference / square) if square else 0.0
        time_us = min(1e3 * start.time_till(end) for start, end in marks)
        return Verdict(error, checks[-1].tolerance, relative, time_us)

    def repeat(self, bind: Bind, launches: int) -> Failure | None:
        """Runs a kernel many times, in pairs that cancel out bit for bit.

        C grows by an exact product and shrinks by the same, so what a single launch does wrong
        stays in C until the comparison after `COMPARED` launches.

        Args:
            bind: makes a run with the given argument values.
            launches: an even number.

        Raises:
            pycuda.driver.Error: if a launch fails.
        """
        self._begin()
        operands, kernels, draw = self._operands, self._kernels, self._draw()
        kernels.fill(operands.bias, ZERO, guards=False)
        kernels.fill(operands.c, RAISED, draw.c)
        self._clear_scratch()
        add, subtract = (bind(operands.values(alpha, 1.0)) for alpha in (1.0, -1.0))
        differing = self._findings.reserve(1)
        for pair in range(1, launches // 2 + 1):
            add()
            subtract()
            if pair % (COMPARED // 2) == 0 or pair == launches // 2:
                kernels.check(operands.c, RAISED, draw.c, self._findings.address(differing))
        written = self._check_written()
        self._restore()
        findings = self._findings.read()
        self._stale = any(findings)
        if findings[differing]:
            return Failure(
                "verify",
                f"{findings[differing]:.0f} elements in or around C differ in {launches} launches "
                "that cancel out: the result is not always the same",
            )
        return stray_writes(findings[written:], WRITTEN, f" in {launches} launches")

    def recheck(self) -> Failure | None:
        """Checks C once more after timed runs with alpha = 1 and beta = 0 on the normal numbers."""
        self._findings.clear()
        tolerance = oracle.tolerance(self._operands.problem)
        check = self._compared((1.0, 0.0), 0, tolerance, self._check_written())
        failure = first_failure(
            self._operands.problem, [check], self._findings.read(), " after timing"
        )
        self._stale = failure is not None
        return failure

    def _begin(self) -> None:
        if self._stale:
            self.refresh()
        self._stale = True  # unless everything is right in the end
        self._findings.clear()

    def _restore(self, *, guards: bool = False) -> None:
        """Fills A, B and the bias with their normal numbers."""
        for matrix, seed in zip(self._read, self._seeds, strict=True):
            self._kernels.fill(matrix, NORMAL, seed, guards=guards)

    def _draw(self) -> Draw:
        """Draws the integers of an exact product and puts them into A and B."""
        draw = Draw.of(self._operands.problem.k)
        self._kernels.fill_factors(draw)
        return draw

    def _exact(
        self,
        bind: Bind,
        scaling: tuple[float, float],
        special: Special | None,
        marks: list[tuple[Any, Any]],
    ) -> VerifiedRun:
        """Enqueues a product of integers and its checks."""
        operands, kernels, draw = self._operands, self._kernels, self._draw()
        alpha, beta = scaling
        if special:
            kernels.place_special(special, draw.pairing.first)
        if operands.problem.has_bias:
            kernels.fill(operands.bias, EVEN, draw.bias, guards=False)
        kernels.fill(operands.c, RAISED if beta > 0 else LOWERED, draw.c)
        self._run(bind, scaling, marks)
        place, tolerance = self._check_written(), exact.tolerance(operands.problem, special)
        errors = self._findings.address(self._findings.reserve(ERRORS))
        kernels.compare_exact(alpha, beta, draw, special=special, tolerance=tolerance, place=errors)
        return VerifiedRun(described(scaling, special), place, tolerance, exact=True)

    def _rounded(
        self,
        bind: Bind,
        scaling: tuple[float, float],
        tolerance: float,
        marks: list[tuple[Any, Any]],
    ) -> VerifiedRun:
        """Enqueues a product of normal numbers and its checks."""
        seed = secrets.randbits(62)
        if scaling[1]:
            self._kernels.fill(self._operands.c, NORMAL, seed)
        else:
            self._kernels.poison(self._operands.c)
        self._run(bind, scaling, marks)
        return self._compared(scaling, seed, tolerance, self._check_written())

    def _run(self, bind: Bind, scaling: tuple[float, float], marks: list[tuple[Any, Any]]) -> None:
        self._clear_scratch()
        run = bind(self._operands.values(*scaling))
        start = self._session.mark()
        run()
        marks.append((start, self._session.mark()))

    def _clear_scratch(self) -> None:
        """Poisons the workspace and zeroes the counters, both with new guards."""
        operands, kernels = self._operands, self._kernels
        kernels.poison(operands.workspace)
        kernels.poison(operands.counters)
        if operands.counters.length:
            kernels.clear(operands.counters)

    def _check_written(self) -> int:
        """Enqueues the checks of what a kernel writes; returns the place of their counts."""
        operands = self._operands
        return self._check(
            (operands.c, POISONED, 0),
            (operands.workspace, POISONED, 0),
            (operands.counters, ZERO, 0),
        )

    def _check_read(self) -> int:
        """Enqueues the checks of what a kernel only reads; returns the place of their counts."""
        a, b, bias = zip(self._read, (NORMAL,) * len(READ), self._seeds, strict=True)
        return self._check(a, b, bias)

    def _check(self, *contents: tuple[GuardedMatrix, int, int]) -> int:
        first = self._findings.reserve(len(contents))
        for i, (matrix, content, seed) in enumerate(contents):
            self._kernels.check(matrix, content, seed, self._findings.address(first + i))
        return first

    def _compared(
        self, scaling: tuple[float, float], seed: int, tolerance: float, place: int
    ) -> VerifiedRun:
        """Enqueues the comparison with the reference, whose figures follow those at `place`."""
        self._kernels.compare(
            *scaling,
            seed=seed,
            roundoff=oracle.roundoff(self._operands.problem),
            tolerance=tolerance,
            place=self._findings.address(self._findings.reserve(ERRORS)),
        )
        return VerifiedRun(described(scaling), place, tolerance)
