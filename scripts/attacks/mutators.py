"""Damage to files: flipped bits, cuts, copies, zeroed pages, impossible words, other kinds."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import socket
import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from random import Random

from autotune.files import limits
from autotune.files.compressed import expanded

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
