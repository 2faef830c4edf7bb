"""Benches of worker processes that need no GPU; the candidate says what they do."""

# ruff: noqa: ARG001, ARG002 - the worker calls these with arguments that they ignore
from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from pickle import PicklingError
from typing import TYPE_CHECKING

from autotune.device import find
from autotune.errors import MissingError, RunnerError
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.measure.worker import PendingBench
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.measure.verify import Passed

CRAMPED = 2**40
"""Bytes of workspace with which the GPU has no room for two processes."""


class Unpicklable:
    """A value that cannot be pickled. Python words that differently for each kind and version."""

    def __reduce__(self) -> tuple[object, ...]:
        raise PicklingError("cannot pickle an Unpicklable")


WRONG = Failure("verify", "wrong result for small integers: largest error 1")


class Unreadable:
    """A value that can be pickled but not unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("not a number",)


class Fake:
    """A bench whose candidates misbehave as their configuration's `act` says."""

    def __init__(self, problem: Problem | None = None) -> None:
        self._requests = 0
        self._problem = problem

    def switch_to(self, problem: Problem) -> None:
        self._problem = problem

    def has_room(self, workspace: int) -> bool:
        return workspace < CRAMPED

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> object:
        self._requests += 1
        match str(candidate.config.values["act"]):
            case "count":
                return Measurement(float(self._requests), samples=os.getpid())
            case "problem":
                assert self._problem is not None
                return Measurement(float(self._problem.m), samples=os.getpid())
            case "coarse":
                return Measurement(1.0, samples=os.getpid(), relative_error=1e-3)
            case "objective":
                return Measurement(1.0, cold_us=2.0 if objective == "cold" else None)
            case "raise":
                raise RuntimeError("an illegal memory access was encountered")
            case "exit":
                print("the last words", file=sys.stderr)
                sys.stderr.flush()
                os._exit(7)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                if marker := os.environ.get("AUTOTUNE_TEST_MARKER"):
                    Path(marker).touch()
                time.sleep(600)
            case "print":
                print("chatter " * 10_000, flush=True)
                return Measurement(1.0)
            case "unpicklable":
                return Unpicklable()
            case "unreadable":
                return Unreadable()
        return "garbage"

    def rematch(
        self, candidates: Sequence[Candidate], with_baseline: bool, deadline: float
    ) -> tuple[list[object], Measurement | Failure | None]:
        if any(candidate.config.values.get("act") == "kill" for candidate in candidates):
            os.kill(os.getpid(), signal.SIGKILL)
        baseline = Measurement(20.0, samples=25) if with_baseline else None
        return [self.measure(candidate, None) for candidate in candidates], baseline

    def energy_fault(self) -> str | None:
        return None

    def energies(
        self, candidates: Sequence[Candidate], with_baseline: bool
    ) -> tuple[list[object], Energy | None] | str:
        """A joule a microsecond; `still` is a counter that fails."""
        acts = {candidate.config.values.get("act") for candidate in candidates}
        if "still" in acts:
            return "the counter stands still"
        times = [self.measure(candidate, None) for candidate in candidates]
        joules = [each.time_us if isinstance(each, Measurement) else each for each in times]
        energies = [Energy(each, 0.0, 1e6, 1.0) if type(each) is float else each for each in joules]
        return energies, Energy(20.0, 0.0, 1e6, 1.0) if with_baseline else None

    def examine(self, candidate: Candidate) -> object:
        outcome = self.measure(candidate, None)
        return None if isinstance(outcome, Measurement) else outcome

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> dict[str, object]:
        names = [str(candidate.config) for candidate in candidates]
        return {
            name: self.measure(candidate, None)
            for name, candidate in zip(names, candidates, strict=True)
        } | {name: Measurement(30.0) for name in baselines}

    def baseline(self) -> Measurement | Failure:
        return Measurement(10.0, relative_error=1e-6)


class WrongLibrary(Fake):
    """A bench whose vendor library computes a wrong result: at once, or `late`, in a rematch."""

    def __init__(self, *, late: bool) -> None:
        super().__init__()
        self._late = late

    def rematch(
        self, candidates: Sequence[Candidate], with_baseline: bool, deadline: float
    ) -> tuple[list[object], Measurement | Failure | None]:
        outcomes, baseline = super().rematch(candidates, with_baseline, deadline)
        return outcomes, WRONG if self._late else baseline

    def baseline(self) -> Measurement | Failure:
        return super().baseline() if self._late else WRONG


class ShortOfK(Fake):
    """A bench of a vendor library of version 13.1.0 that drops the end of an odd K, computes no M
    of 7, and ends the process at an N of 7."""

    def library(self) -> str:
        return "13.1.0"

    def verify_libraries(self, baselines: Sequence[str]) -> dict[str, Passed | Failure]:
        # It imports NumPy, which the other benches do without.
        from autotune.measure.verify import Passed

        assert self._problem is not None
        if self._problem.m == 7:
            return {}
        if self._problem.n == 7:
            raise RuntimeError("an illegal memory access was encountered")
        right = Passed(0.5, 1.0, 0.25, 10.0, "13.1.0")
        own: dict[str, Passed | Failure] = {"vendor": WRONG if self._problem.k % 2 else right}
        return own | dict.fromkeys(baselines, right)


class Tireless(Fake):
    """A bench on which a candidate takes a microsecond per thread of its block.

    A candidate with the parameter `act` breaks the context.
    """

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement:
        if "act" in candidate.config.values:
            raise RuntimeError("an illegal memory access was encountered")
        time_us = float(candidate.resources.threads)
        return Measurement(time_us, cold_us=2 * time_us, error=0.0, tolerance=1.0)


def opened(finish: Callable[[], object]) -> PendingBench:
    return PendingBench(find("h100"), "13.0", finish)


def fake(problem: Problem, index: int) -> PendingBench:
    return opened(lambda: Fake(problem))


def wrong_library(problem: Problem, index: int) -> PendingBench:
    return opened(lambda: WrongLibrary(late=False))


def late_wrong_library(problem: Problem, index: int) -> PendingBench:
    return opened(lambda: WrongLibrary(late=True))


def tireless(problem: Problem, index: int) -> PendingBench:
    return opened(Tireless)


def slow(problem: Problem, index: int) -> PendingBench:
    """Ready once the file named by AUTOTUNE_TEST_MARKER exists."""

    def finish() -> Fake:
        while not Path(os.environ["AUTOTUNE_TEST_MARKER"]).exists():
            time.sleep(0.01)
        return Fake()

    return opened(finish)


def missing(problem: Problem, index: int) -> PendingBench:
    raise MissingError("no PyCUDA; install it")


def broken(problem: Problem, index: int) -> PendingBench:
    raise ZeroDivisionError("in the factory")


def stillborn(problem: Problem, index: int) -> PendingBench:
    os._exit(3)


def large(problem: Problem, index: int) -> PendingBench:
    """A bench that reports its GPU, which has too little memory."""

    def finish() -> Fake:
        raise RunnerError("verification needs 90 GiB")

    return opened(finish)


def lonely(problem: Problem, index: int) -> PendingBench:
    """Ready only while no other such process exists, as on a GPU in exclusive mode.

    The process that has the GPU holds a lock on the file named by AUTOTUNE_TEST_MARKER until it
    ends.
    """

    def finish() -> Fake:
        gpu = os.open(os.environ["AUTOTUNE_TEST_MARKER"], os.O_CREAT | os.O_RDWR)
        try:
            fcntl.flock(gpu, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunnerError("all CUDA-capable devices are busy or unavailable") from None
        return Fake()

    return opened(finish)


def once(problem: Problem, index: int) -> PendingBench:
    """Ready the first time only; the file named by AUTOTUNE_TEST_MARKER records that."""
    marker = Path(os.environ["AUTOTUNE_TEST_MARKER"])
    if marker.exists():
        raise MissingError("the GPU fell off the bus")
    marker.touch()
    return opened(Fake)


def short_of_k(problem: Problem, index: int) -> PendingBench:
    return opened(lambda: ShortOfK(problem))
