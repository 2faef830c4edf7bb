"""Disks that fill up while a tuner runs: what was told is on a disk, or the error counts it."""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from support.full_disk import enlarge, small_files

from attacks import tuners
from attacks.forks import Fork, Send
from attacks.outcome import Outcome
from attacks.tuners import Place
from autotune import settings
from autotune.errors import AutotuneError, UnsavedError
from autotune.records import codec
from autotune.tuning.options import Search

TRIALS = 60
SECONDS = 60.0
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
        options = Search(trials=TRIALS, seed=self._random.randrange(1000), sampler="random")
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


def run(count: int, seed: int, folder: Path) -> Outcome:
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
