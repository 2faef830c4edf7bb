"""SIGKILL, signals and full disks during tuning: no reported trial is lost, runs resume."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import tuners
from support.full_disk import enlarge, small_files
from support.paths import ROOT
from tuners import PROBLEM, Fork, Found, Outcome, Place, Send

from autotune import settings
from autotune.errors import AutotuneError, UnsavedError
from autotune.records import codec
from autotune.tuning.options import Sampler, Search

KILLS_A_STUDY = 10
TRIALS_A_RUN = 20
SECONDS = 60.0
# A trial takes a few milliseconds, the start a few tenths of a second.
MOMENT_S, START_S = 0.02, 0.4


@dataclass
class Study:
    """A study whose tuners are killed one after the other.

    Attributes:
        place: where its files are.
        told: how often each trial was told, over all runs; without those that were lost.
        lost: trials that were told and then missing.
        kills: killed processes; one that ends first does not count.
        broken: broken promises.
    """

    place: Place
    random: Random
    label: str
    told: Counter[str] = field(default_factory=Counter)
    lost: set[str] = field(default_factory=set)
    kills: int = 0
    broken: list[str] = field(default_factory=list)

    def attack(self, kills: int) -> None:
        """Kills tuners, then lets the last one finish."""
        attempts = 0
        while self.kills < kills and attempts < 3 * kills:
            attempts += 1
            self._run(kill=True)
            self._check()
        self._run(kill=False)
        if not self._check().record:
            self._fault("the last run left no record")
        repeated = [config for config, times in self.told.items() if times > 1]
        if repeated:
            self._fault(f"{len(repeated)} told trials were measured again: {repeated[0]}")

    def _run(self, *, kill: bool) -> None:
        """A tuner that resumes the study; it is killed or runs to its end."""
        limit = len(self.told) + TRIALS_A_RUN
        sampler: Sampler = "gp" if self.random.random() < 0.1 else "random"
        options = Search(trials=limit, seed=self.random.randrange(1000), sampler=sampler)
        fork = tuners.started(self.place, options)
        messages = self._until_killed(fork) if kill else []
        messages += fork.messages(SECONDS)
        fork.kill()
        self._note(messages, fork, killed=kill)

    def _until_killed(self, fork: Fork) -> list[Any]:
        """The messages of a tuner until it is killed: between two trials, or at its start."""
        wanted = self.random.randrange(-4, TRIALS_A_RUN + 3)
        messages: list[Any] = []
        deadline = monotonic() + SECONDS
        while len(messages) < wanted and (message := fork.line(deadline)) is not None:
            messages.append(message)
        sleep(self.random.uniform(0, MOMENT_S if wanted > 0 else START_S))
        fork.kill()
        return messages

    def _note(self, messages: list[Any], fork: Fork, *, killed: bool) -> None:
        status = fork.ended()
        if status == -9 and killed:
            self.kills += 1
        elif status != 0:
            self._fault(f"a run ended with {status}")
        earlier = len(self.told)
        for message in messages:
            if "told" in message:
                self.told[message["told"]] += 1
            if "raised" in message:
                self._fault(f"raised {message['raised']}")
            if message.get("started", earlier) < earlier:
                self._fault(f"resumed with {message['started']} of {earlier} told trials")

    def _check(self) -> tuners.Found:
        found = tuners.found(self.place)
        for config in self.told.keys() - {*found.trials}:
            self._fault(f"lost 1 of {len(self.told)} told trials: {config}")
            self.lost.add(config)
            del self.told[config]
        for fault in found.faults:
            self._fault(fault)
        return found

    def _fault(self, text: str) -> None:
        self.broken.append(f"{self.label}, after {self.kills} kills: {text}")


def run_kills(count: int, seed: int, folder: Path) -> Outcome:
    """Kills `count` tuners: two of three studies are in a log alone, every third in SQLite
    too."""
    tuners.warm(folder / "warm")
    kills, told, lost, runs = 0, 0, 0, 0
    broken: list[str] = []
    while kills < count:
        root = folder / f"study-{runs}"
        root.mkdir(parents=True)
        sqlite = runs % 3 == 2
        place = Place(root / "cache", f"sqlite:///{root}/study.db" if sqlite else None)
        kind = "SQLite" if sqlite else "log"
        study = Study(place, Random(f"{seed} {runs}"), f"seed {seed}, study {runs} ({kind})")
        study.attack(min(KILLS_A_STUDY, count - kills))
        runs, kills, lost = runs + 1, kills + study.kills, lost + len(study.lost)
        told += len(study.told) + len(study.lost)
        broken += study.broken
        if not study.kills:
            broken.append(f"{study.label}: no process could be killed in time")
            break
    counts = {"kills": kills, "studies": runs, "told trials": told, "lost trials": lost}
    return Outcome(counts, broken=tuple(broken))


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RUN_START_S = 0.6
"""The interpreter and the package start in this time; half of the signals fall into it."""
COMMAND = "import sys; from autotune.__main__ import main; sys.exit(main())"
"""As the installed command starts."""
RUN_TRIALS = 150
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


def run_interrupts(count: int, seed: int, folder: Path) -> Outcome:
    """Interrupts `count` runs, a third with each signal."""
    tuners.recorded()
    random = Random(seed)
    whole_s = uninterrupted(folder / "whole")
    counts: Counter[str] = Counter({"signals": count})
    broken: list[str] = []
    slowest = 0.0
    for number in range(count):
        early = random.random() < 0.5
        after_s = random.uniform(0, min(RUN_START_S, whole_s) if early else whole_s)
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
    words = ["tune", str(PROBLEM), "--device", "replay:h100", "--trials", str(RUN_TRIALS)]
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


DISK_TRIALS = 60
ROOM = 2**24
"""Bytes of a disk that has room again."""


@dataclass(frozen=True)
class Case:
    """A disk that fills up.

    Attributes:
        limit: bytes of the disk, or of the largest file if `mounted` is false.
        mounted: whether it is a file system of its own.
        sqlite: whether the trials go to a database on it.
        spare: whether there is a folder elsewhere.
    """

    limit: int
    mounted: bool
    sqlite: bool
    spare: bool


class Disk:
    """A case in a folder.

    Args:
        case: the case.
        folder: of the disk and of the spare folder.
        random: draws the search's seed.
    """

    def __init__(self, case: Case, folder: Path, random: Random) -> None:
        self._case, self._random = case, random
        self._disk, self._spare = folder / "disk", folder / "spare"
        self._spare.mkdir()
        url = f"sqlite:///{self._disk}/study.db" if case.sqlite else None
        self.place = Place(self._disk / "cache", url)

    def fill(self) -> tuple[Counter[str], list[str]]:
        """Tunes until the disk is full, makes room, and tunes on; counts, and what is wrong."""
        options = Search(trials=DISK_TRIALS, seed=self._random.randrange(1000), sampler="random")
        with self._ready() as limited:
            first = self._tuned(options, limited)
            if self._case.mounted:
                enlarge(self._disk, ROOM)
            kept = tuners.found(self.place, self._prepare)
            wrong = [*kept.faults]
            wrong += missing(first, {*kept.trials})
            if any(message.get("timed") for message in first) and not self._recorded(first):
                wrong.append("no record, nor a word where it is")
            second = self._tuned(options, limited=False)
        wrong += [f"then raised {message['raised']}" for message in second if "raised" in message]
        if not any("recorded" in message for message in second):
            wrong.append(f"with room again no record was written: {second[-1:]}")
        counts = Counter(
            {
                "full": sum("error" in message for message in first),
                "told trials": sum("told" in message for message in first),
                "counted as lost": sum(len(message.get("lost", ())) for message in first),
            }
        )
        return counts, wrong

    @contextmanager
    def _ready(self) -> Iterator[bool]:
        """Whether tuners have a limit on their files; without one a disk is mounted."""
        self._disk.mkdir()
        if not self._case.mounted:
            yield True
            return
        mount("-t", "tmpfs", "-o", f"size={self._case.limit}", "tmpfs", str(self._disk))
        try:
            yield False
        finally:
            subprocess.run(["umount", "--lazy", str(self._disk)], check=False)

    def _tuned(self, options: Search, limited: bool) -> list[Any]:
        """The messages of a tuner; an expected error is one of them."""

        def run(send: Send) -> None:
            self._prepare()
            try:
                if limited:
                    with small_files(self._case.limit):
                        tuners.tuner(self.place, options)(send)
                else:
                    tuners.tuner(self.place, options)(send)
            except AutotuneError as error:
                lost = error.trials if isinstance(error, UnsavedError) else ()
                record = isinstance(error, UnsavedError) and error.record is not None
                configs = [str(trial.config) for trial in lost]
                send({"error": str(error), "lost": configs, "record": record})

        fork = Fork(run)
        messages = [*fork.messages(SECONDS)]
        fork.kill()
        fork.ended()
        return messages or [{"error": "", "raised": f"nothing was heard for {SECONDS:.0f} s"}]

    def _prepare(self) -> None:
        """Makes the case's spare folder, if any, the only one for records that do not fit."""
        spare = [self._spare] if self._case.spare else []
        setattr(settings, "spare_dirs", lambda: spare)  # noqa: B010

    def _recorded(self, messages: list[Any]) -> bool:
        """Whether the record is in the cache, in the spare folder, or in the error."""
        if tuners.found(self.place, self._prepare).record or any(
            message.get("record") for message in messages
        ):
            return True
        for path in self._spare.rglob("*.json"):
            with suppress(ValueError):
                codec.loads(path.read_bytes())
                return True
        return False


def missing(messages: list[Any], kept: set[str]) -> list[str]:
    """The faults of a run that was told trials and kept only the configurations `kept`."""
    told = {message["told"] for message in messages if "told" in message}
    errors = [message for message in messages if "error" in message]
    lost = {config for message in errors for config in message["lost"]}
    wrong = [f"raised {message['raised']}" for message in messages if "raised" in message]
    untold = told - kept - lost
    if untold:
        wrong.append(f"{len(untold)} of {len(told)} told trials lost and not counted: {errors}")
    texts = " ".join(message["error"] for message in errors)
    if lost and f"measured trials in no file: {len(lost)}" not in texts:
        wrong.append(f"{len(lost)} trials are in no file and the error says: {texts}")
    if "\n" in texts:
        wrong.append(f"an error of several lines: {texts}")
    return wrong


def mount(*words: str) -> None:
    """Mounts; raises OSError if that is not allowed."""
    mounted = subprocess.run(["mount", *words], capture_output=True, text=True, check=False)
    if mounted.returncode:
        raise OSError(mounted.stderr.strip())


def run_full_disk(count: int, seed: int, folder: Path) -> Outcome:
    """Fills `count` disks."""
    tuners.warm(folder / "warm")
    mounting, why = mountable(folder / "trial")
    counts: Counter[str] = Counter(disks=count)
    broken: list[str] = []
    for number in range(count):
        random = Random(f"{seed} {number}")
        mounted = mounting and number % 2 == 0
        limit = random.randrange(2**12, 2**17 if mounted else 2**16)
        case = Case(limit, mounted, sqlite=number % 8 == 5, spare=random.random() < 0.5)
        root = folder / f"case-{number}"
        root.mkdir()
        seen, wrong = Disk(case, root, random).fill()
        counts.update(seen)
        counts["file systems"] += mounted
        broken += [f"seed {seed}, {case}: {line}" for line in wrong]
    skipped = () if mounting else (f"file systems of their own: {why}",)
    return Outcome(dict(counts), broken=tuple(broken), skipped=skipped)


def mountable(folder: Path) -> tuple[bool, str]:
    """Whether a file system can be mounted here, and why not."""
    folder.mkdir()
    try:
        mount("-t", "tmpfs", "-o", "size=65536", "tmpfs", str(folder))
    except OSError as error:
        return False, str(error)
    subprocess.run(["umount", "--lazy", str(folder)], check=False)
    return True, ""
