"""Cases tried one after the other in forked processes, each with a deadline and limited memory.

A process goes on to the next case; one that dies, hangs or needs too much memory is replaced. The
deadline is for a case alone, so a thousand cases take little more than their work.
"""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic

from attacks.forks import Fork, Send
from attacks.outcome import Outcome

SECONDS = 10.0
"""A case that takes longer hangs."""
MEMORY_MB = 500.0
"""The resident memory that a process may need, the interpreter and all libraries included."""
_HEADROOM = 2**30

Try = Callable[[int], list[str]]
"""Tries the case of a number and returns what is wrong, a line each."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a case.

    Attributes:
        number: of the case.
        faults: what is wrong.
        seconds: it took.
        peak_mb: the largest resident memory meanwhile.
        hung: whether it was stopped at the deadline.
    """

    number: int
    faults: tuple[str, ...]
    seconds: float
    peak_mb: float
    hung: bool = False


def surveyed(
    labels: Sequence[str], folder: Path, attempt: Callable[[int, Path], list[str]]
) -> Outcome:
    """The outcome of trying every case, each in a folder of its own."""

    def tried(number: int) -> list[str]:
        place = folder / str(number)
        place.mkdir()
        try:
            return attempt(number, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)

    counts = {"cases": len(labels), "faulty": 0, "hangs": 0}
    peaks = {"MB": 0.0, "s": 0.0}
    broken: list[str] = []
    for verdict in verdicts(len(labels), tried):
        counts["faulty"] += bool(verdict.faults)
        counts["hangs"] += verdict.hung
        broken += [f"{labels[verdict.number]}: {fault}" for fault in verdict.faults]
        peaks["MB"] = max(peaks["MB"], verdict.peak_mb)
        peaks["s"] = max(peaks["s"], verdict.seconds)
    return Outcome(counts, peaks, tuple(broken))


def verdicts(count: int, attempt: Try) -> Iterator[Verdict]:
    """The outcomes of the cases 0 to `count` - 1, in order."""
    number = 0
    while number < count:
        fork = Fork(partial(_go_on, range(number, count), attempt))
        try:
            while number < count:
                began = monotonic()
                message = fork.line(began + SECONDS)
                if message is None or "raised" in message:
                    fork.kill()
                    yield _interrupted(number, fork, monotonic() - began, message)
                    number += 1
                    break
                yield Verdict(number, tuple(message["faults"]), message["s"], message["mb"])
                number += 1
        finally:
            fork.kill()
            fork.ended()


def _interrupted(
    number: int, fork: Fork, seconds: float, message: dict[str, str] | None
) -> Verdict:
    """The outcome of a case that ended its process."""
    status = fork.ended()
    hung = message is None and seconds >= SECONDS
    if message is not None:
        fault = f"raised {message['raised']}"
    elif hung:
        fault = f"hangs: no end after {seconds:.1f} s"
    else:
        name = signal.Signals(-status).name if status < 0 else f"status {status}"
        fault = f"killed its process: {name}"
    return Verdict(number, (fault,), seconds, 0.0, hung)


def _go_on(numbers: range, attempt: Try, send: Send) -> None:
    """The life of a process: tries the cases until the last one, or until one ends it."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _HEADROOM, used + _HEADROOM))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in numbers:
        _forget_peak()
        began = monotonic()
        faults = attempt(number)
        seconds, peak = monotonic() - began, _peak_mb()
        if peak > MEMORY_MB:
            faults = [*faults, f"needs {peak:.0f} MB"]
        send({"faults": faults, "s": seconds, "mb": peak})


def _forget_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
