"""Damage to every kind of file: nothing raises, hangs, fills the memory or is believed."""

from __future__ import annotations

import contextlib
import gzip
import logging
import lzma
import os
import re
import resource
import shutil
import signal
import socket
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from time import monotonic

from kept import KINDS, Kept, read_best
from support.impossible_values import KINDS as SAMPLES
from support.impossible_values import Mutation, mutations
from support.sample_records import H100, SQUARE
from tuners import Fork, Outcome, Send

from autotune.files import limits
from autotune.files.reading import expanded
from autotune.records import Store

Damage = Callable[[Random, bytes], bytes]
"""Damages the content of a file."""

Replace = Callable[[Path], None]
"""Puts something else in the place of a file, which has been removed."""

PAGE = 4096
WORDS = (
    *(b"-1", b"0", b"1e999", b"-1e308", b"NaN", b"Infinity", b"null", b"true", b"1.5"),
    *(b"9" * 400, b"2147483648", b"9223372036854775808", b"[]", b"{}", b'""', b'"x"'),
    *(b'"\\ud800"', b'"\xff\xfe"', b'"\\u0000"', b"[" * 100_000, b'{"a":' * 100_000),
)
_TOKEN = re.compile(rb'-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?|"[^"\n]*"|true|false|null')


def flip_bits(random: Random, data: bytes) -> bytes:
    """One to eight bits flipped."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 8)) if data else 0):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(random: Random, data: bytes) -> bytes:
    """The beginning of the file, which may be empty."""
    return data[: random.choice((0, 1, random.randrange(len(data) + 1), len(data) - 1))]


def insert(random: Random, data: bytes) -> bytes:
    """Random bytes, or zeros, somewhere."""
    place, count = random.randrange(len(data) + 1), random.choice((1, 2, 16, PAGE))
    more = random.randbytes(count) if random.random() < 0.7 else bytes(count)
    return data[:place] + more + data[place:]


def remove(random: Random, data: bytes) -> bytes:
    """Some bytes left out."""
    place = random.randrange(len(data) + 1)
    return data[:place] + data[place + random.choice((1, 2, 16, PAGE)) :]


def repeat(random: Random, data: bytes) -> bytes:
    """The whole file twice, or a part of it."""
    if random.random() < 0.3:
        return data + data
    first, last = sorted(random.randrange(len(data) + 1) for _ in range(2))
    return data[:last] + data[first:]


def zero(random: Random, data: bytes) -> bytes:
    """A page of zeros, as a crash of the machine leaves it."""
    first = random.randrange(max(1, len(data))) // 512 * 512
    last = min(len(data), first + random.choice((512, PAGE)))
    return data[:first] + bytes(last - first) + data[last:]


def word(random: Random, data: bytes) -> bytes:
    """A number or text replaced by one that does not belong there."""
    tokens = [*_TOKEN.finditer(data)]
    if not tokens:
        return flip_bits(random, data)
    token = random.choice(tokens)
    return data[: token.start()] + random.choice(WORDS) + data[token.end() :]


def shuffle_lines(random: Random, data: bytes) -> bytes:
    """A line left out, twice or elsewhere."""
    lines = data.splitlines(keepends=True)
    if not lines:
        return data
    line = lines.pop(random.randrange(len(lines)))
    for _ in range(random.choice((0, 1, 2))):
        lines.insert(random.randrange(len(lines) + 1), line)
    return b"".join(lines)


def garbage(random: Random, data: bytes) -> bytes:
    """Something else of that length, or a file of another kind."""
    others = (b"\x7fELF" + bytes(60), b"SQLite format 3\0" + bytes(84), b"%PDF-1.7\n", b"hello\n")
    return random.choice((random.randbytes(len(data)), bytes(len(data)), *others))


def bomb(random: Random, data: bytes) -> bytes:
    """A few MB of gzip that expand to 4 GiB of zeros, or of white space around nothing."""
    del data
    return _bomb(random.choice((b"\0", b" ", b"[")))


def zipped(damage: Damage) -> Damage:
    """The same damage to what a gzip or xz file expands to."""

    def changed(random: Random, data: bytes) -> bytes:
        content = damage(random, expanded(data, limits.RECORDING_TEXT))
        if data.startswith(b"\x1f\x8b"):
            return gzip.compress(content, compresslevel=1, mtime=0)
        return lzma.compress(content, preset=0)

    return changed


@lru_cache(maxsize=4)
def _bomb(byte: bytes) -> bytes:
    stream = zlib.compressobj(9, zlib.DEFLATED, wbits=31)
    stream.compress(byte)
    head = stream.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same MiB compresses to the same bytes, so these may be repeated.
    stream.compress(byte * 2**20)
    return head + stream.flush(zlib.Z_FULL_FLUSH) * 4096


def named_pipe(path: Path) -> None:
    """A pipe that nobody writes to."""
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    """A socket that nobody listens to."""
    with socket.socket(socket.AF_UNIX) as made, suppress(OSError):
        here = os.open(path.parent, os.O_RDONLY)
        try:  # a socket's path has at most 107 bytes
            made.bind(f"/proc/self/fd/{here}/{path.name}")
        finally:
            os.close(here)
    if not path.exists():
        path.mkdir()


def folder(path: Path) -> None:
    """A directory with a file in it."""
    path.mkdir()
    (path / "file").write_bytes(b"{}")


def zeros_without_end(path: Path) -> None:
    """A link to `/dev/zero`."""
    path.symlink_to("/dev/zero")


def silent_terminal(path: Path) -> None:
    """A link to a device whose reader waits for ever."""
    path.symlink_to("/dev/ptmx")


def loop(path: Path) -> None:
    """A link to itself."""
    path.symlink_to(path.name)


def dangling(path: Path) -> None:
    """A link to nothing."""
    path.symlink_to("gone")


def sparse(path: Path) -> None:
    """A file of 1 TiB without content."""
    with path.open("wb") as file:
        file.truncate(2**40)


def white_space(path: Path) -> None:
    """300 MB of blanks in front of nothing."""
    with path.open("wb") as file:
        for _ in range(300):
            file.write(b" " * 2**20)


DAMAGES: Mapping[str, Damage] = {
    damage.__name__.replace("_", " "): damage
    for damage in (
        *(flip_bits, cut, insert, remove, repeat, zero),
        *(word, shuffle_lines, garbage, bomb),
    )
}
REPLACEMENTS: Mapping[str, Replace] = {
    replacement.__name__.replace("_", " "): replacement
    for replacement in (
        *(named_pipe, unix_socket, folder, zeros_without_end, silent_terminal),
        *(loop, dangling, sparse, white_space),
    )
}


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


REPLACED = 0.08
"""Share of the cases in which something else is in the file's place."""


@dataclass(frozen=True)
class Case:
    """A damaged file.

    Attributes:
        kind: of the file.
        damage: what is done to it.
        seed: the random seed of the damage.
        inside: whether what a compressed file expands to is damaged.
    """

    kind: str
    damage: str
    seed: str
    inside: bool

    def __str__(self) -> str:
        inside = ", inside the compressed file" if self.inside else ""
        return f"{self.kind}, {self.damage}{inside} ({self.seed})"


def case_of(number: int, seed: int) -> Case:
    """The case of a number; cases of a seed are always the same."""
    random = Random(f"{seed} {number}")
    kind = random.choices([*KINDS], [kept.weight for kept in KINDS.values()])[0]
    replaced = random.random() < REPLACED
    damage = random.choice([*(REPLACEMENTS if replaced else DAMAGES)])
    inside = KINDS[kind].compressed and damage in DAMAGES and random.random() < 0.5
    return Case(kind, damage, f"seed {seed}, case {number}", inside and damage != "bomb")


SILENT = logging.NullHandler()


def attempt(case: Case, folder: Path) -> list[str]:
    """Writes the damaged file into a folder and reads it."""
    kept = KINDS[case.kind]
    lay_out(kept, case, folder)
    logging.getLogger("autotune").addHandler(SILENT)
    return kept.read(folder)


def lay_out(kept: Kept, case: Case, folder: Path) -> None:
    """The files of a sample, one of them damaged."""
    for name, content in kept.more().items():
        (folder / name).write_bytes(content)
    path = folder / kept.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if case.damage in REPLACEMENTS:
        REPLACEMENTS[case.damage](path)
        return
    damage = DAMAGES[case.damage]
    if case.inside:
        damage = zipped(damage)
    path.write_bytes(damage(Random(case.seed), kept.content()))


def run_mutations(count: int, seed: int, folder: Path) -> Outcome:
    """Tries `count` damaged files."""
    cases = [case_of(number, seed) for number in range(count)]
    for kind in dict.fromkeys(case.kind for case in cases):
        KINDS[kind].content()  # once, for all forks

    labels = [str(case) for case in cases]
    return surveyed(labels, folder, lambda number, place: attempt(cases[number], place))


LOOKED_UP = "record"


def run_impossible(count: int, seed: int, folder: Path) -> Outcome:
    """Tries `count` files, spread evenly over all kinds, or all there are if that is fewer."""
    cases = [(name, mutation) for name in SAMPLES for mutation in mutations(SAMPLES[name])]
    step = max(1, len(cases) // count)
    cases = cases[seed % step :: step][:count]
    labels = [f"{name}, {mutation}" for name, mutation in cases]
    outcome = surveyed(
        labels, folder, lambda number, place: attempt_impossible(*cases[number], place)
    )
    impossible = sum(not mutation.possible for _, mutation in cases)
    believed = sum(line.endswith(BELIEVED) for line in outcome.broken)
    counts = {**outcome.counts, "impossible": impossible, "believed": believed}
    return replace(outcome, counts=counts)


BELIEVED = "an impossible value was believed"


def attempt_impossible(name: str, mutation: Mutation, folder: Path) -> list[str]:
    """Reads a file; looks records up that were accepted."""
    try:
        SAMPLES[name].read(mutation.data)
    except ValueError:
        return []
    if not mutation.possible:
        return [BELIEVED]
    return looked_up(mutation.data, folder) if name == LOOKED_UP else []


def looked_up(record: bytes, folder: Path) -> list[str]:
    """The faults of `autotune best` when this record is in its cache."""
    path = Store(folder).path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    path.write_bytes(record)
    return read_best(folder)
