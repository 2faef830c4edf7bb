"""Verification: whether a kernel computes the right C and writes nowhere else."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.driver.arguments import Values
from autotune.gpu.operands import Operands
from autotune.gpu.session import Run, Session
from autotune.gpu.verify_kernels import NORMAL, POISONED, ZERO, VerifyKernels
from autotune.problem import Problem
from autotune.runners.base import Failure
from autotune.verification import oracle


@dataclass(frozen=True)
class Requirements:
    """Requirements that a kernel has to fulfil.

    Attributes:
        scalings: alpha and beta of its two runs.
        tolerance: the largest error allowed in an element, for a problem, alpha and beta.
    """

    scalings: tuple[tuple[float, float], tuple[float, float]]
    tolerance: Callable[[Problem, float, float], float]


KERNEL = Requirements(((0.75, -0.5), (1.0, 0.0)), oracle.tolerance)
"""For a kernel: it has to read C in the first run and must not read it in the second."""
LIBRARY = Requirements(((1.0, 0.0),) * 2, oracle.library_tolerance)
"""For a library, which computes the product and the epilogue one after the other."""
RUNS = 2

# Results, in doubles. For each run: elements changed in and around the buffers it may write, and
# the four figures of `compare`. At the end: elements changed in the buffers it may only read.
WRITTEN = ("around C", "around the workspace", "in or around the counters, which stay zero")
READ = ("in or around A", "in or around B", "in or around the bias")
RUN_RESULTS = len(WRITTEN) + 4
RESULTS = RUNS * RUN_RESULTS + len(READ)


@dataclass(frozen=True)
class Verdict:
    """How far a correct kernel was from the float64 reference in its last run.

    Attributes:
        error: largest absolute error of an element, less what rounding to C's type may change.
        tolerance: the largest error allowed.
        relative: Frobenius norm of the error over that of the reference.
        time_us: the faster of the two runs, launches and a cold L2 included.
    """

    error: float
    tolerance: float
    relative: float
    time_us: float


class Verifier:
    """Checks kernels of one problem against a float64 reference on the device.

    A, B, the bias and the reference stay the same from kernel to kernel until `refresh`. No kernel
    can profit: before each run C and the workspace are poisoned with NaN where they hold no input,
    C gets new numbers where it is one, and afterwards every element of all buffers and of their
    guards is checked. A kernel that damages what is kept fails, and then everything is drawn anew.
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
        self._results = session.allocate(8 * RESULTS)
        # Pinned, so that one asynchronous copy and one synchronisation bring the results.
        self._copied = session.cuda.pagelocked_empty(RESULTS, np.float64)
        self._read = operands.a, operands.b, operands.bias
        self._seeds = (0, 0, 0)  # of the buffers in `_read`
        self._stale = True

    def refresh(self) -> None:
        """Draws new operands and enqueues their reference."""
        self._seeds = secrets.randbits(62), secrets.randbits(62), secrets.randbits(62)
        for matrix, seed in zip(self._read, self._seeds, strict=True):
            self._kernels.fill_normal(matrix, seed)
        self._kernels.multiply()
        self._stale = False

    def verify(
        self, bind: Callable[[Values], Run], requirements: Requirements = KERNEL
    ) -> Verdict | Failure:
        """Runs a kernel for both pairs of alpha and beta; the verdict is that of the last run.

        Afterwards A, B and the bias hold normal numbers and C holds the kernel's last result.

        Args:
            bind: makes a run with the given argument values.
            requirements: what the kernel has to fulfil.

        Raises:
            pycuda.driver.Error: if a launch fails.
        """
        if self._stale:
            self.refresh()
        self._stale = True  # unless everything is right in the end
        operands, problem, seed = self._operands, self._operands.problem, secrets.randbits(62)
        self._session.cuda.memset_d32_async(
            int(self._results), 0, 2 * RESULTS, self._session.stream
        )
        scalings = requirements.scalings
        tolerances = [requirements.tolerance(problem, *scaling) for scaling in scalings]
        marks: list[tuple[Any, Any]] = []
        for i, (alpha, beta) in enumerate(scalings):
            self._reset(beta, seed, first=i == 0)
            run = bind(operands.values(alpha, beta))
            start = self._session.mark()
            run()
            marks.append((start, self._session.mark()))
            self._examine(alpha, beta, tolerances[i], seed, self._place(RUN_RESULTS * i))
        for i, (matrix, drawn) in enumerate(zip(self._read, self._seeds, strict=True)):
            self._kernels.check(matrix, NORMAL, drawn, self._place(RUN_RESULTS * RUNS + i))
        self._session.cuda.memcpy_dtoh_async(self._copied, int(self._results), self._session.stream)
        self._session.synchronize()
        time_us = min(1e3 * start.time_till(end) for start, end in marks)
        outcome = self._outcome(self._copied, requirements, tolerances, time_us)
        self._stale = isinstance(outcome, Failure)
        return outcome

    def _reset(self, beta: float, seed: int, first: bool) -> None:
        """Resets the buffers that a run may write.

        Guards of workspace and counters are filled before the first run alone: a kernel that
        changes them there fails by that run, whatever the second one finds.
        """
        operands, kernels = self._operands, self._kernels
        if beta:
            kernels.fill_normal(operands.c, seed)
        else:
            kernels.poison(operands.c)
        if first or operands.workspace.length:
            kernels.poison(operands.workspace)
        if first:
            kernels.poison(operands.counters)
        if operands.counters.length:
            kernels.clear(operands.counters)

    def _examine(self, alpha: float, beta: float, tolerance: float, seed: int, place: int) -> None:
        """Enqueues the checks of one run, whose results are stored from `place` on."""
        operands = self._operands
        written = (
            (operands.c, POISONED),
            (operands.workspace, POISONED),
            (operands.counters, ZERO),
        )
        for i, (matrix, content) in enumerate(written):
            self._kernels.check(matrix, content, 0, place + 8 * i)
        self._kernels.compare(
            *(alpha, beta),
            seed=seed,
            roundoff=oracle.roundoff(operands.problem),
            tolerance=tolerance,
            place=place + 8 * len(written),
        )

    def _outcome(
        self,
        results: NDArray[np.float64],
        requirements: Requirements,
        tolerances: Sequence[float],
        time_us: float,
    ) -> Verdict | Failure:
        """Judges the results: stray writes first, then the error of each run."""
        problem = self._operands.problem
        if failure := _stray_writes(results[-len(READ) :], READ):
            return failure
        runs = results[: RUN_RESULTS * RUNS].reshape(RUNS, RUN_RESULTS)
        for scaling, tolerance, run in zip(requirements.scalings, tolerances, runs, strict=True):
            text = "(alpha={:g}, beta={:g})".format(*scaling)
            if failure := _stray_writes(run, WRITTEN, f" {text}"):
                return failure
            error, wrong, difference, square = run[len(WRITTEN) :].tolist()
            if not error <= tolerance:
                return Failure(
                    "verify",
                    f"wrong result: largest error {error:.3g}, tolerance {tolerance:.3g}, exceeded "
                    f"by {wrong:.0f} of {problem.batch * problem.m * problem.n} elements {text}",
                )
        return Verdict(error, tolerance, math.sqrt(difference / square) if square else 0.0, time_us)

    def _place(self, index: int) -> int:
        return int(self._results) + 8 * index


def _stray_writes(
    counts: NDArray[np.float64], places: Sequence[str], scaling: str = ""
) -> Failure | None:
    """The failure that names every place with changed elements; None if there is none."""
    changed = [
        f"{count:.0f} elements {place}"
        for count, place in zip(counts, places, strict=False)
        if count
    ]
    if not changed:
        return None
    return Failure("verify", f"stray writes: changed {' and '.join(changed)}{scaling}")
