"""Verification: whether a kernel computes the right C and writes nowhere else."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autotune.cuda.launches import Values
from autotune.measure import exact, oracle
from autotune.measure.exact import Draw, Special
from autotune.measure.measurement import Failure
from autotune.measure.operands import GuardedMatrix, Operands
from autotune.measure.session import Mark, Run, Session
from autotune.measure.verify_kernels import (
    EVEN,
    LOWERED,
    NORMAL,
    POISONED,
    RAISED,
    SCALES,
    ZERO,
    VerifyKernels,
)
from autotune.problem import Problem


@dataclass(frozen=True)
class CheckedBuffer:
    """A buffer with its content, which a run must not change, or whose guards it must not.

    Attributes:
        matrix: the buffer.
        content: what `verify.cu` puts there, such as NORMAL; POISONED where anything may be.
        place: where a stray write was, for a reason of failure.
        seed: the seed of its numbers.
        size: their size.
    """

    matrix: GuardedMatrix
    content: int
    place: str
    seed: int = 0
    size: float = 1.0


def drawn_buffers(operands: Operands) -> list[CheckedBuffer]:
    """A, B, the bias, the scales, the residual and the scale of C, with seeds that nobody can
    foresee."""
    problem = operands.problem

    def drawn(matrix: GuardedMatrix, place: str, content: int = NORMAL, size: float = 1.0) -> None:
        seed = secrets.randbits(62)
        buffers.append(CheckedBuffer(matrix, content, f"in or around {place}", seed, size))

    buffers: list[CheckedBuffer] = []
    drawn(operands.a, "A", size=oracle.operand_factor(problem, 0))
    drawn(operands.b, "B", size=oracle.operand_factor(problem, 1))
    drawn(operands.bias, "the bias")
    if problem.scale != "none":
        scales = (operands.scale_a, "the scales of A"), (operands.scale_b, "the scales of B")
        for side, (scale, place) in enumerate(scales):
            drawn(scale.vector, place, SCALES, oracle.scale_size(problem, side))
    if problem.has_residual:
        drawn(operands.residual, "the residual")
    if problem.has_fp8_output:
        buffers.append(CheckedBuffer(operands.result, POISONED, "around the scale of C and amax"))
    return buffers


@dataclass(frozen=True)
class Checks:
    """The checks that the results of a kernel have to pass.

    Attributes:
        exact: alpha and beta of products of small integers, which have to be right bit for bit.
        scalings: alpha and beta of products of normal numbers; the errors of the last are reported.
        tolerance: the largest error allowed there in an element, for a problem, alpha and beta.
        specials: whether infinities, NaN and denormal numbers have to stay where they belong, and
            operands of 8 bits that are all maximal or denormal are right.
        draw: draws a product of small integers.
        rounds: whether the product may be rounded before its epilogue; then products of integers
            are left out where the epilogue rounds too.
    """

    exact: tuple[tuple[float, float], ...]
    scalings: tuple[tuple[float, float], ...]
    tolerance: Callable[[Problem, float, float], float]
    specials: bool = False
    draw: Callable[[Problem], Draw] = Draw.of
    rounds: bool = False

    def of_integers(self, problem: Problem) -> tuple[tuple[float, float], ...]:
        """Alpha and beta of the products of integers, as far as the problem has a choice."""
        if self.rounds and exact.tolerance(problem):
            return ()
        return self.exact if problem.has_factors else PLAIN[: len(self.exact)]


PLAIN = ((1.0, 0.0),)
"""Alpha and beta of problems that have no others."""
KERNEL = Checks(((exact.ALPHA, -1.0),), ((1.0, 0.0),), oracle.tolerance)
"""The verification of a kernel, which has to read C in the first run and must not in the second."""
THOROUGH = Checks(
    ((exact.ALPHA, 1.0),), ((0.75, -0.5), (0.0, 1.0), (1.0, 0.0)), oracle.tolerance, specials=True
)
"""The verification of a kernel that is about to be recorded."""
LIBRARY = Checks(
    *(PLAIN * 2, PLAIN * 2, oracle.library_tolerance), draw=Draw.of_library, rounds=True
)
"""The verification of a library, which may add partial sums of K in 16 bits, and computes the
epilogue after the product. Integers show what the tolerance hides: a dropped tail of K."""

CAPACITY = 128
"""Doubles; the verification of a winner takes 59."""


class Findings:
    """Doubles in device memory that verification kernels add to, each place for one finding."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._memory = session.allocate(8 * CAPACITY)
        self._copied = np.empty(CAPACITY)
        self._used = 0

    def clear(self) -> None:
        """Enqueues zeros for everything."""
        self._used = 0
        self._session.fill(int(self._memory), 0, 2 * CAPACITY)

    def reserve(self, count: int) -> int:
        """The index of the first of `count` places that nothing else uses."""
        index = self._used
        self._used += count
        assert self._used <= CAPACITY
        return index

    def address(self, index: int) -> int:
        """The device address of a place."""
        return int(self._memory) + 8 * index

    def read(self) -> list[float]:
        """All findings so far; waits for the stream."""
        self._session.download(self._copied, int(self._memory))
        return [float(value) for value in self._copied[: self._used]]


WRITTEN = ("around C", "around the workspace", "in or around the counters, which stay zero")
ERRORS = 4
"""Figures of `compare`: largest error, wrong elements, sums of squares of errors and of values. Of
`compare_exact` the last two are the largest size of C that is expected and that found, for fp8."""
AMAX_ERROR = 2.0**-10
"""The relative error that `amax` may have: that of an activation."""


@dataclass(frozen=True)
class Passed:
    """The error of a correct kernel against the float64 reference in its last run; None for a
    kernel whose result nothing was compared with.

    Attributes:
        error: largest absolute error of an element, less what rounding to C's type may change.
        tolerance: the largest error allowed.
        relative: Frobenius norm of the error over that of the reference.
        time_us: the faster of the two runs, launches and a cold L2 included.
        library: the version of the vendor's library that ran; None for a kernel.
    """

    error: float | None
    tolerance: float | None
    relative: float | None
    time_us: float
    library: str | None = None


@dataclass(frozen=True)
class EnqueuedRun:
    """A run whose checks are enqueued.

    Attributes:
        text: alpha, beta and special values, for a reason.
        place: index of its findings: the counts of `WRITTEN`, then `ERRORS` figures.
        tolerance: the largest error allowed.
        exact: whether it was of small integers.
    """

    text: str
    place: int
    tolerance: float
    exact: bool = False


def first_failure(
    problem: Problem, runs: Sequence[EnqueuedRun], findings: Sequence[float], when: str = ""
) -> Failure | None:
    """The failure of the first run that is not right; `when` says when it was, such as ` later`."""
    for run in runs:
        counts = findings[run.place :]
        if failure := stray_writes(counts, WRITTEN, f"{when} {run.text}"):
            return failure
        error, wrong, expected, largest = counts[len(WRITTEN) :][:ERRORS]
        if wrong or not error <= run.tolerance:
            integers = " for small integers" if run.exact else ""
            return Failure(
                "verify",
                f"wrong result{integers}{when}: largest error {error:.3g}, tolerance "
                f"{run.tolerance:.3g}, exceeded by {wrong:.0f} of "
                f"{problem.batch * problem.m * problem.width} elements {run.text}",
            )
        amax_checked = run.exact and problem.has_fp8_output and expected != largest
        if amax_checked and not abs(largest - expected) <= AMAX_ERROR * expected:
            return Failure(
                "verify",
                f"amax is {largest:.6g}{when}, the largest size of C {expected:.6g} {run.text}",
            )
    return None


def described(scaling: tuple[float, float], special: Special | None = None) -> str:
    """The text of a run for a reason: alpha, beta and the special value."""
    text = "alpha={:g}, beta={:g}".format(*scaling)
    if special is None:
        return f"({text})"
    where = (
        f"row {special.row} of A" if special.row is not None else f"column {special.column} of B"
    )
    return f"({text}, {special.value:.3g} in {where})"


def stray_writes(counts: Sequence[float], places: Sequence[str], when: str = "") -> Failure | None:
    """The failure that names every place with changed elements; None if there is none."""
    changed = [
        f"{count:.0f} elements {place}"
        for count, place in zip(counts, places, strict=False)
        if count
    ]
    if not changed:
        return None
    return Failure("verify", f"stray writes: changed {' and '.join(changed)}{when}")


COMPARED = 50
"""Launches that cancel out before C is compared with what it was."""

Bind = Callable[[Values], Run]
"""Makes a run with the given argument values."""
Draws = Callable[[Problem], Draw]
Scaling = tuple[float, float]
"""Alpha and beta."""


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
        self._drawn: list[CheckedBuffer] = []
        self._stale = True
        self._marks: list[tuple[Mark, Mark]] = []  # the start and the end of each run

    def refresh(self) -> None:
        """Draws new operands and enqueues their reference."""
        self._drawn = drawn_buffers(self._operands)
        self._restore(guards=True)
        self._kernels.multiply()
        self._stale = False

    def verify(self, bind: Bind, checks: Checks = KERNEL) -> Passed | Failure:
        """Runs a kernel as the checks say; the errors of the last run are returned.

        Afterwards the operands hold normal numbers again, and C the kernel's last result.

        Raises:
            Exception: the session's `Error`, if a launch fails.
        """
        self._begin()
        problem, draw = self._operands.problem, checks.draw
        runs = [self._exact(bind, scaling, None, draw) for scaling in checks.of_integers(problem)]
        if checks.specials:
            with_c = (exact.ALPHA, 1.0) if problem.has_factors else PLAIN[0]
            specials, extremes = exact.specials(problem), oracle.extremes(problem)
            runs += [self._exact(bind, with_c, special, draw) for special in specials]
            runs += [self._extreme(bind, factors) for factors in extremes]
        if runs:
            self._restore()
        if checks.specials and oracle.extremes(problem):
            self._kernels.multiply()
        for scaling in checks.scalings if problem.has_factors else PLAIN:
            tolerance = checks.tolerance(problem, *scaling)
            runs.append(self._rounded(bind, scaling, tolerance))
        read = self._check(self._drawn)
        findings = self._findings.read()
        time_us = min(1e3 * start.time_till(end) for start, end in self._marks)
        self._marks.clear()  # events must not outlive the session
        places = [buffer.place for buffer in self._drawn]
        failure = stray_writes(findings[read:], places) or first_failure(problem, runs, findings)
        self._stale = failure is not None
        if failure:
            return failure
        error, _, difference, square = findings[runs[-1].place + len(WRITTEN) :][:ERRORS]
        relative = math.sqrt(difference / square) if square else 0.0
        return Passed(error, runs[-1].tolerance, relative, time_us)

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
        kernels.fill_added(ZERO, draw)
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
        self._marks.clear()

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
        self, bind: Bind, scaling: Scaling, special: Special | None, drawn: Draws
    ) -> EnqueuedRun:
        """Enqueues a product of integers and its checks."""
        operands, kernels, draw = self._operands, self._kernels, self._draw(drawn)
        alpha, beta = scaling
        if special:
            kernels.place_special(special, draw.pairing.first)
        kernels.fill_added(EVEN, draw)
        if beta:
            kernels.fill(operands.c, RAISED if beta > 0 else LOWERED, draw.c)
        else:
            kernels.poison(operands.c)
        self._run(bind, scaling)
        place, tolerance = self._check_written(), exact.tolerance(operands.problem, special)
        errors = self._findings.address(self._findings.reserve(ERRORS))
        kernels.compare_exact(alpha, beta, draw, special=special, tolerance=tolerance, place=errors)
        return EnqueuedRun(described(scaling, special), place, tolerance, exact=True)

    def _extreme(self, bind: Bind, factors: tuple[float, float]) -> EnqueuedRun:
        """Enqueues a product of normal numbers times these factors, and its checks."""
        operands, kernels, problem = self._operands, self._kernels, self._operands.problem
        self._restore()
        for matrix, size in zip((operands.a, operands.b), factors, strict=True):
            kernels.fill(matrix, NORMAL, secrets.randbits(62), size=size, guards=False)
        kernels.multiply()
        size = oracle.product_size(problem, factors)
        tolerance = oracle.tolerance(problem, magnitude=size)
        kernels.scale_result(oracle.result_scale(problem, magnitude=size))
        return self._rounded(bind, PLAIN[0], tolerance)

    def _rounded(self, bind: Bind, scaling: Scaling, tolerance: float) -> EnqueuedRun:
        """Enqueues a product of normal numbers and its checks."""
        seed = secrets.randbits(62)
        if scaling[1]:
            self._kernels.fill(self._operands.c, NORMAL, seed)
        else:
            self._kernels.poison(self._operands.c)
        self._run(bind, scaling)
        return self._compared(scaling, seed, tolerance, self._check_written())

    def _run(self, bind: Bind, scaling: Scaling) -> None:
        self.clear_scratch()
        run = bind(self._operands.values(*scaling))
        start = self._session.mark()
        run()
        self._marks.append((start, self._session.mark()))

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
        buffers = (operands.c, POISONED), (operands.workspace, POISONED), (operands.counters, ZERO)
        return self._check(
            [CheckedBuffer(*each, place) for each, place in zip(buffers, WRITTEN, strict=True)]
        )

    def _check(self, buffers: Sequence[CheckedBuffer]) -> int:
        """Enqueues the checks of buffers; returns the place of their counts."""
        first = self._findings.reserve(len(buffers))
        for place, buffer in enumerate(buffers, first):
            address = self._findings.address(place)
            self._kernels.check(buffer.matrix, buffer.content, buffer.seed, address, buffer.size)
        return first

    def _compared(self, scaling: Scaling, seed: int, tolerance: float, place: int) -> EnqueuedRun:
        """Enqueues the comparison with the reference, whose figures follow those at `place`."""
        self._kernels.compare(
            *scaling,
            seed=seed,
            roundoff=self._operands.problem.output_element.roundoff,
            tolerance=tolerance,
            place=self._findings.address(self._findings.reserve(ERRORS)),
        )
        return EnqueuedRun(described(scaling), place, tolerance)
