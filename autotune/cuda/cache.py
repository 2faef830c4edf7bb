"""Compiled programs on disk: those of the user's cache, and those that came with the package.

The cache has one file a program, named by a hash of everything that determines it. A file has three
parts joined by newlines: the SHA-256 of its name and of the rest, a JSON header, the cubin. A
truncated, damaged or renamed file fails its checksum, counts as absent and is overwritten.

    autotune/data/programs/sm_90.programs

is an archive that came with the package: a line of JSON, which tells where each program lies, and
the programs, each compressed alone, as compiled when the wheel was built. Its keys do not cover the
compiler: the sources decide which programs serve.
"""

from __future__ import annotations

import contextlib
import json
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from autotune import files, settings
from autotune.cuda.program import CompileFailure, Program, source_hash
from autotune.errors import CacheError
from autotune.families.plan import Template
from autotune.files import checksum, decoding, limits, reading
from autotune.settings import warn_once

FORMAT = 2
LARGEST = 2**31 - 1
"""The largest of a program's numbers; all are 32-bit integers of the CUDA driver."""


@dataclass(frozen=True)
class ProgramHeader:
    """The header of a program's file: the fields of `Program` that only compiling tells."""

    symbol: str
    registers: int
    shared: int
    local: int
    spills: int
    barriers: int
    compiler: str
    log: str

    @classmethod
    def of(cls, program: Program) -> ProgramHeader:
        """The header of a program."""
        return cls(*(getattr(program, field.name) for field in fields(cls)))

    def __post_init__(self) -> None:
        counts = self.registers, self.shared, self.local, self.spills, self.barriers
        if min(counts) < 0 or max(counts) > LARGEST or not self.symbol:
            raise ValueError(f"its resources are impossible: {counts} of {self.symbol!r}")


def cached(
    cache: Path,
    key: str,
    template: Template,
    arch: str,
    build: Callable[[], Program | CompileFailure],
) -> Program | CompileFailure:
    """Returns the cached program, or builds it and keeps it.

    A key that is being built, in this process or another, is waited for. A cache that cannot be
    written only costs a warning that names it.
    """
    path = _directory(cache) / f"{key}.program"
    if (hit := _read(path, key, template, arch)) is not None:
        return hit
    with _locked(path):
        result = _read(path, key, template, arch) or build()
        if isinstance(result, Program):
            try:
                _write(path, result)
            except CacheError as error:
                warn_once(f"compiled programs are not kept: {error}")
    return result


def kept(cache: Path, key: str, template: Template, arch: str) -> Program | None:
    """The cached program; None if it has to be built."""
    return _read(_directory(cache) / f"{key}.program", key, template, arch)


def size(cache: Path) -> tuple[int, int]:
    """Number of cached programs, and their total bytes."""
    sizes = [path.stat().st_size for path in paths(cache)]
    return len(sizes), sum(sizes)


def paths(cache: Path) -> list[Path]:
    """The files of all cached programs; their stems are the keys."""
    return sorted(_directory(cache).glob("*.program"))


def fault(path: Path) -> str | None:
    """Why a program's file cannot be loaded; None if it is intact."""
    try:
        _parts(path, path.stem)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except ValueError as error:
        return str(error)
    return None


def clear(cache: Path) -> int:
    """Deletes all programs and leftovers of interrupted writers; returns the number of programs.

    Raises:
        CacheError: if the cache cannot be written to.
    """
    programs, _ = size(cache)
    try:
        for path in _directory(cache).glob("*.*"):
            path.unlink(missing_ok=True)
    except OSError as error:
        raise settings.unusable(_directory(cache), "write to", error) from error
    return programs


def _directory(cache: Path) -> Path:
    return cache / "programs"


def _read(path: Path, key: str, template: Template, arch: str) -> Program | None:
    try:
        header, cubin = _parts(path, key)
    except (OSError, ValueError):
        return None
    return Program(template=template, arch=arch, cubin=cubin, key=key, **asdict(header))


def _parts(path: Path, key: str) -> tuple[ProgramHeader, bytes]:
    """Header and cubin of a file; ValueError if it does not hold the program of that key."""
    body = checksum.unsealed_code(key, files.read(path, limits.PROGRAM))
    header, _, cubin = body.partition(b"\n")
    return decoding.convert(decoding.parse(header), ProgramHeader, "program"), cubin


def _write(path: Path, program: Program) -> None:
    header = json.dumps(asdict(ProgramHeader.of(program)))
    body = header.encode() + b"\n" + program.cubin
    files.ensure(path.parent)
    try:
        # Not durable: a program that a power cut damages fails its checksum and is compiled again.
        files.write_whole(path, checksum.sealed_code(program.key, body), durable=False)
    except OSError as error:
        raise settings.unusable(path.parent, "write to", error) from error


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the build lock of a file; without one a program is built twice at worst."""
    lock = path.with_suffix(".lock")
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError, CacheError):
            stack.enter_context(files.locked_file(lock))
        try:
            yield
        finally:
            # Before the release: a waiting builder then sees the file gone and finds the program.
            with contextlib.suppress(OSError):
                lock.unlink()


SUFFIX = ".programs"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9}]
Places = dict[str, tuple[int, int]]
"""Offset and bytes of each program, by its key."""


def archive_of(programs: Iterable[Program], sources: dict[str, str]) -> bytes:
    """An archive of programs; `sources` has the hash of each source file."""
    places: Places = {}
    pieces: list[bytes] = []
    offset = 0
    for program in programs:
        shown = {**asdict(ProgramHeader.of(program)), "log": ""}
        data = json.dumps(shown).encode() + b"\n" + program.cubin
        packed = lzma.compress(data, lzma.FORMAT_RAW, filters=_FILTERS)
        key = _key(program.template, program.arch, sources[program.template.source])
        places[key] = offset, len(packed)
        pieces.append(packed)
        offset += len(packed)
    return json.dumps(places, separators=(",", ":")).encode() + b"\n" + b"".join(pieces)


def installed_count(arch: str) -> int:
    """The number of shipped programs for an architecture."""
    return len(_archive(archive_path(arch))[1])


def is_installed(template: Template, arch: str) -> bool:
    """Whether a program came with the package.

    Raises:
        OSError: if its source cannot be read.
    """
    places = _archive(archive_path(arch))[1]
    return bool(places) and _key_of(template, arch) in places


def find_installed(template: Template, arch: str) -> Program | None:
    """A program that came with the package; None if it did not.

    Raises:
        OSError: if its source cannot be read.
    """
    archive = archive_path(arch)
    start, places = _archive(archive)
    if not places or (place := places.get(key := _key_of(template, arch))) is None:
        return None
    try:
        with reading.opened(archive) as file:
            file.seek(start + place[0])
            data = lzma.decompress(file.read(place[1]), lzma.FORMAT_RAW, filters=_FILTERS)
        header, _, cubin = data.partition(b"\n")
        fields = decoding.convert(decoding.parse(header), ProgramHeader, "program")
    except (OSError, ValueError, lzma.LZMAError):
        return None  # a damaged archive costs a compilation
    return Program(
        template=template, arch=target_of(template, arch), cubin=cubin, key=key, **asdict(fields)
    )


def target_of(template: Template, arch: str) -> str:
    """The compiler's target for a template on an architecture."""
    return f"{arch}a" if template.specific else arch


def archive_path(arch: str) -> Path:
    """The archive of an architecture's programs."""
    return settings.programs_dir() / f"{arch}{SUFFIX}"


@lru_cache(maxsize=8)
def _archive(path: Path) -> tuple[int, Places]:
    """The offset of the programs of an archive, and the place of each; none without an archive."""
    try:
        with reading.opened(path) as file:
            line = file.readline(limits.MANIFEST)
        places = decoding.convert(decoding.parse(line), Places, "programs")
    except (OSError, ValueError):
        return 0, {}
    return len(line), places


def _key_of(template: Template, arch: str) -> str:
    return _key(template, target_of(template, arch), source_hash(template.source))


def _key(template: Template, exact: str, source: str) -> str:
    parts = FORMAT, source, template.declaration + template.expression, exact
    return sha256(json.dumps(parts).encode()).hexdigest()
