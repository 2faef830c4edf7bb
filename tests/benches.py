"""Benches for the worker process that need no GPU; the candidate's parameter says what they do."""

# ruff: noqa: ARG001, ARG002 - the worker calls these with arguments that they ignore
from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autotune.device import Device, find
from autotune.errors import MissingError
from autotune.problem import Problem
from autotune.runner import Candidate, Measurement


class Unreadable:
    """Pickles well, and fails when the parent reads it."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return int, ("not a number",)


class Fake:
    """A bench whose candidates misbehave as their configuration's `act` says."""

    def __init__(self, problem: Problem, index: int) -> None:
        self.device: Device = find("h100")
        self.driver = "13.0"
        self._requests = 0
        self._warm = False

    def warm_up(self) -> None:
        self._warm = True

    def measure(
        self, candidate: Candidate, best_us: float | None, vendor_error: float | None
    ) -> object:
        self._requests += 1
        match str(candidate.config.values["act"]):
            case "count":
                return Measurement(float(self._requests), samples=os.getpid())
            case "vendor":
                return Measurement(1.0, relative_error=vendor_error)
            case "warm":
                return Measurement(1.0, samples=int(self._warm))
            case "raise":
                raise RuntimeError("an illegal memory access was encountered")
            case "exit":
                print("the last words", file=sys.stderr)
                sys.stderr.flush()
                os._exit(7)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "hang":
                time.sleep(600)
            case "print":
                print("chatter " * 10_000, flush=True)
                return Measurement(1.0)
            case "lambda":
                return lambda: None
            case "unreadable":
                return Unreadable()
        return "garbage"

    def rematch(
        self, candidates: Sequence[Candidate], against_vendor: bool
    ) -> tuple[list[object], Measurement | None]:
        if any(candidate.config.values.get("act") == "kill" for candidate in candidates):
            os.kill(os.getpid(), signal.SIGKILL)
        vendor = Measurement(20.0, samples=25) if against_vendor else None
        return [self.measure(candidate, None, None) for candidate in candidates], vendor

    def compare(self, candidates: Sequence[Candidate], rivals: Sequence[str]) -> dict[str, object]:
        names = [str(candidate.config) for candidate in candidates]
        return {
            name: self.measure(candidate, None, None)
            for name, candidate in zip(names, candidates, strict=True)
        } | {rival: Measurement(30.0) for rival in rivals}

    def baseline(self) -> Measurement | None:
        return Measurement(10.0, relative_error=1e-6)


class Tireless(Fake):
    """A bench for which every candidate is right, and as fast as its block is wide."""

    def measure(
        self, candidate: Candidate, best_us: float | None, vendor_error: float | None
    ) -> Measurement:
        return Measurement(float(candidate.resources.threads), error=0.0, tolerance=1.0)


def tireless(problem: Problem, index: int) -> Tireless:
    return Tireless(problem, index)


def missing(problem: Problem, index: int) -> Fake:
    raise MissingError("no PyCUDA; install it")


def broken(problem: Problem, index: int) -> Fake:
    raise ZeroDivisionError("in the factory")


def stillborn(problem: Problem, index: int) -> Fake:
    os._exit(3)


def once(problem: Problem, index: int) -> Fake:
    """Stands the first time only, which the file named by AUTOTUNE_TEST_MARKER records."""
    marker = Path(os.environ["AUTOTUNE_TEST_MARKER"])
    if marker.exists():
        raise MissingError("the GPU fell off the bus")
    marker.touch()
    return Fake(problem, index)
