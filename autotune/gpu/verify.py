"""Verification: whether a kernel computes the right C and writes nowhere else."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotune.cuda.launches import Values
from autotune.gpu.drawn import DrawnBuffer, drawn_buffers, fill_added, read_places
from autotune.gpu.findings import Findings
from autotune.gpu.judgement import (
    ERRORS,
    WRITTEN,
    Verdict,
    VerifiedRun,
    described,
    first_failure,
    stray_writes,
)
from autotune.gpu.operands import Operands
from autotune.gpu.requirements import KERNEL, PLAIN, Requirements
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
from autotune.verification import exact, oracle, quantised
from autotune.verification.exact import Draw, Special

COMPARED = 50
"""Launches that cancel out before C is compared with what it was."""

Bind = Callable[[Values], Run]
"""Makes a run with the given argument values."""
Draws = Callable[[Problem], Draw]
Scaling = tuple[float, float]
"""Alpha and beta."""
Marks = list[tuple[Any, Any]]
"""The start and the end of each run."""


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
        self._session, self._operands = session, operands
        self._kernels = VerifyKernels(session, operands, cache)
        self._findings = Findings(session)
        self._drawn: list[DrawnBuffer] = []
        self._stale = True

    def refresh(self) -> None:
        """Draws new operands and enqueues their reference."""
        self._drawn = drawn_buffers(self._operands)
        self._restore(guards=True)
        self._kernels.multiply()
        self._stale = False

    def verify(self, bind: Bind, requirements: Requirements = KERNEL) -> Verdict | Failure:
        """Runs a kernel as the requirements say; the verdict is that of the last run.

        Afterwards the operands hold normal numbers again, and C the kernel's last result.

        Raises:
            Exception: the session's `Error`, if a launch fails.
        """
        self._begin()
        problem = self._operands.problem
        marks: Marks = []
        integers = requirements.of_integers(problem)
        draw = requirements.draw
        checks = [self._exact(bind, scaling, None, marks, draw) for scaling in integers]
        if requirements.specials:
            with_c = (exact.ALPHA, 1.0) if problem.has_factors else PLAIN[0]
            checks += [
                self._exact(bind, with_c, special, marks, draw)
                for special in exact.specials(problem)
            ]
            checks += [
                self._extreme(bind, factors, marks) for factors in quantised.extremes(problem)
            ]
        if checks:
            self._restore()
        if requirements.specials and quantised.extremes(problem):
            self._kernels.multiply()
        for scaling in requirements.of_normals(problem):
            tolerance = requirements.tolerance(problem, *scaling)
            checks.append(self._rounded(bind, scaling, tolerance, marks))
        read = self._check(*self._drawn)
        findings = self._findings.read()
        failure = stray_writes(findings[read:], read_places(problem)) or first_failure(
            problem, checks, findings
        )
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
            Exception: the session's `Error`, if a launch fails.
        """
        if not self._operands.problem.has_factors:
            return self._repeat_plainly(bind, launches)
        self._begin()
        operands, kernels, draw = self._operands, self._kernels, self._draw()
        fill_added(kernels, operands, ZERO, draw)
        kernels.fill(operands.c, RAISED, draw.c)
        self.clear_scratch()
        add, subtract = (bind(operands.values(alpha, 1.0)) for alpha in (1.0, -1.0))
        differing = self._findings.reserve(1)
        for pair in range(1, launches // 2 + 1):
            add()
            subtract()
            if pair % (COMPARED // 2) == 0 or pair == launches // 2:
                kernels.check(operands.c, RAISED, draw.c, self._findings.address(differing))
        return self._repeated(differing, f"{launches} launches that cancel out")

    def _repeat_plainly(self, bind: Bind, launches: int) -> Failure | None:
        """Runs a kernel that only overwrites C many times; each result has to be right."""
        self._begin()
        operands, kernels, draw = self._operands, self._kernels, self._draw()
        errors, tolerance = self._findings.reserve(ERRORS), exact.tolerance(operands.problem)
        run = bind(operands.values(*PLAIN[0]))
        for _ in range(launches):
            kernels.poison(operands.c)
            self.clear_scratch()
            run()
            place = self._findings.address(errors)
            kernels.compare_exact(*PLAIN[0], draw, special=None, tolerance=tolerance, place=place)
        return self._repeated(errors + 1, f"{launches} launches")

    def _repeated(self, differing: int, launches: str) -> Failure | None:
        """The failure of many launches; the finding at `differing` counts wrong elements."""
        written = self._check_written()
        self._restore()
        findings = self._findings.read()
        self._stale = any(findings)
        if count := findings[differing]:
            return Failure(
                "verify",
                f"{count:.0f} elements in or around C differ in {launches}: the result is not "
                "always the same",
            )
        return stray_writes(findings[written:], WRITTEN, f" in {launches}")

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
        """Fills A, B, the bias, the residual and all scales with what was drawn."""
        for buffer in self._drawn:
            content, seed, size = buffer.content, buffer.seed, buffer.size
            self._kernels.fill(buffer.matrix, content, seed, size=size, guards=guards)
        self._kernels.scale_result(oracle.result_scale(self._operands.problem))

    def _draw(self, drawn: Draws = Draw.of) -> Draw:
        """Draws the integers of an exact product and puts them into A and B."""
        draw = drawn(self._operands.problem)
        self._kernels.fill_factors(draw)
        self._kernels.scale_result(exact.RESULT_SCALE)
        return draw

    def _exact(
        self, bind: Bind, scaling: Scaling, special: Special | None, marks: Marks, drawn: Draws
    ) -> VerifiedRun:
        """Enqueues a product of integers and its checks."""
        operands, kernels, draw = self._operands, self._kernels, self._draw(drawn)
        alpha, beta = scaling
        if special:
            kernels.place_special(special, draw.pairing.first)
        fill_added(kernels, operands, EVEN, draw)
        if beta:
            kernels.fill(operands.c, RAISED if beta > 0 else LOWERED, draw.c)
        else:
            kernels.poison(operands.c)
        self._run(bind, scaling, marks)
        place, tolerance = self._check_written(), exact.tolerance(operands.problem, special)
        errors = self._findings.address(self._findings.reserve(ERRORS))
        kernels.compare_exact(alpha, beta, draw, special=special, tolerance=tolerance, place=errors)
        return VerifiedRun(described(scaling, special), place, tolerance, exact=True)

    def _extreme(self, bind: Bind, factors: tuple[float, float], marks: Marks) -> VerifiedRun:
        """Enqueues a product of normal numbers times these factors, and its checks."""
        operands, kernels, problem = self._operands, self._kernels, self._operands.problem
        self._restore()
        for matrix, size in zip((operands.a, operands.b), factors, strict=True):
            kernels.fill(matrix, NORMAL, secrets.randbits(62), size=size, guards=False)
        kernels.multiply()
        size = quantised.magnitude(problem, factors)
        tolerance = oracle.tolerance(problem, magnitude=size)
        kernels.scale_result(oracle.result_scale(problem, magnitude=size))
        return self._rounded(bind, PLAIN[0], tolerance, marks)

    def _rounded(self, bind: Bind, scaling: Scaling, tolerance: float, marks: Marks) -> VerifiedRun:
        """Enqueues a product of normal numbers and its checks."""
        seed = secrets.randbits(62)
        if scaling[1]:
            self._kernels.fill(self._operands.c, NORMAL, seed)
        else:
            self._kernels.poison(self._operands.c)
        self._run(bind, scaling, marks)
        return self._compared(scaling, seed, tolerance, self._check_written())

    def _run(self, bind: Bind, scaling: Scaling, marks: Marks) -> None:
        self.clear_scratch()
        run = bind(self._operands.values(*scaling))
        start = self._session.mark()
        run()
        marks.append((start, self._session.mark()))

    def clear_scratch(self) -> None:
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
            DrawnBuffer(operands.c, POISONED),
            DrawnBuffer(operands.workspace, POISONED),
            DrawnBuffer(operands.counters, ZERO),
        )

    def _check(self, *buffers: DrawnBuffer) -> int:
        """Enqueues the checks of buffers; returns the place of their counts."""
        first = self._findings.reserve(len(buffers))
        for place, buffer in enumerate(buffers, first):
            address = self._findings.address(place)
            self._kernels.check(buffer.matrix, buffer.content, buffer.seed, address, buffer.size)
        return first

    def _compared(self, scaling: Scaling, seed: int, tolerance: float, place: int) -> VerifiedRun:
        """Enqueues the comparison with the reference, whose figures follow those at `place`."""
        self._kernels.compare(
            *scaling,
            seed=seed,
            roundoff=oracle.roundoff(self._operands.problem),
            tolerance=tolerance,
            place=self._findings.address(self._findings.reserve(ERRORS)),
        )
        return VerifiedRun(described(scaling), place, tolerance)
