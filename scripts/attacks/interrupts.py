"""SIGINT, SIGTERM and SIGHUP at random moments of `autotune tune`, its start included.

Every run ends soon, in a line and not in a traceback, with the status of the signal. What was told
is in the log, and in the record.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic, sleep

from support.paths import ROOT

from attacks import tuners
from attacks.outcome import Outcome
from attacks.tuners import PROBLEM, Found, Place

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START_S = 0.6
"""The interpreter and the package start in this time; half of the signals fall into it."""
SECONDS = 60.0
COMMAND = "import sys; from autotune.__main__ import main; sys.exit(main())"
"""As the installed command starts."""
TRIALS = 150
_TOLD = re.compile(r"^(\d+) trials, best \d", re.MULTILINE)


@dataclass(frozen=True)
class Run:
    """An interrupted run.

    Attributes:
        number: the signal.
        after_s: when it was sent.
        status: the exit status, or minus the signal that ended the process.
        errors: standard error.
        seconds: from the signal to the end.
    """

    number: signal.Signals
    after_s: float
    status: int
    errors: str
    seconds: float

    @property
    def unborn(self) -> bool:
        """Whether the interpreter itself was interrupted, before it came to the package."""
        return "Traceback" in self.errors and "autotune" not in self.errors

    @property
    def told(self) -> int:
        """The most trials, at least one of them with a time, that it printed."""
        return max((int(match) for match in _TOLD.findall(self.errors)), default=0)


def run(count: int, seed: int, folder: Path) -> Outcome:
    """Interrupts `count` runs, a third with each signal."""
    tuners.recorded()
    random = Random(seed)
    whole_s = uninterrupted(folder / "whole")
    counts: Counter[str] = Counter({"signals": count})
    broken: list[str] = []
    slowest = 0.0
    for number in range(count):
        early = random.random() < 0.5
        after_s = random.uniform(0, min(START_S, whole_s) if early else whole_s)
        place = Place(folder / f"cache-{number}")
        ended = interrupted(place, SIGNALS[number % 3], after_s)
        found = tuners.found(place)
        counts[f"status {ended.status}"] += 1
        counts["before the package"] += ended.unborn
        counts["with trials"] += bool(found.timed)
        counts["records"] += found.record
        slowest = max(slowest, ended.seconds)
        label = f"seed {seed}, case {number}, {ended.number.name} after {after_s:.3f} s"
        broken += [f"{label}: {fault}" for fault in faults(ended, found)]
    return Outcome(dict(counts), {"s to the end": slowest}, tuple(broken))


def faults(run: Run, found: Found) -> list[str]:
    """The faults in how a run ended and in the files it left."""
    wrong = list(found.faults)
    if run.unborn:
        return wrong
    if "Traceback" in run.errors:
        wrong.append(f"a traceback: {run.errors[-300:]}")
    # Before the package is imported, and after the record is written, the signal ends the process.
    if run.status not in (0, 128 + run.number, -run.number):
        wrong.append(f"ended with {run.status}: {run.errors[-300:]}")
    if run.status == -run.number and found.trials and not found.record:
        wrong.append(f"died of the signal after {len(found.trials)} trials, without a record")
    if run.told > len(found.trials):
        wrong.append(f"told {run.told} trials, kept {len(found.trials)}")
    if run.told and not found.record:
        wrong.append(f"told {run.told} trials and wrote no record")
    return wrong


def uninterrupted(folder: Path) -> float:
    """The seconds of a whole run."""
    began = monotonic()
    process = started(folder)
    errors = process.communicate(timeout=SECONDS)[1]
    if process.returncode:
        raise RuntimeError(f"autotune tune ended with {process.returncode}: {errors}")
    return monotonic() - began


def interrupted(place: Place, number: signal.Signals, after_s: float) -> Run:
    """A run that gets a signal."""
    process = started(place.cache)
    sleep(after_s)
    process.send_signal(number)
    began = monotonic()
    try:
        errors = process.communicate(timeout=SECONDS)[1]
    except subprocess.TimeoutExpired:
        process.kill()
        errors = process.communicate()[1] + f"\nError: it did not end within {SECONDS:.0f} s"
    return Run(number, after_s, process.returncode, errors, monotonic() - began)


def started(cache: Path) -> subprocess.Popen[str]:
    """A tuning run as a user starts it."""
    words = ["tune", str(PROBLEM), "--device", "replay:h100", "--trials", str(TRIALS)]
    command = [sys.executable, "-c", COMMAND, *words, "--sampler", "random", "--quiet"]
    environment = os.environ | {"AUTOTUNE_CACHE_DIR": str(cache), "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=deliverable,
    )


def deliverable() -> None:
    """Undoes what a shell that starts the campaign in the background, or `nohup`, has ignored."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
