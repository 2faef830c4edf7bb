"""Programs that came with the package, compiled when its wheel was built.

    autotune/data/programs/sm_90.programs

An archive is a line of JSON, which tells where each program lies, and the programs, each compressed
alone. Its keys do not cover the compiler: the sources decide which programs serve.
"""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from dataclasses import asdict
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from autotune import settings
from autotune.compiler.cache import FORMAT, ProgramHeader
from autotune.compiler.program import Program
from autotune.compiler.sources import source_hash
from autotune.families.plan import Template
from autotune.files import decoding, limits, reading

SUFFIX = ".programs"
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 9}]
Places = dict[str, tuple[int, int]]
"""Offset and bytes of each program, by its key."""


def dumps(programs: Iterable[Program], sources: dict[str, str]) -> bytes:
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


def count(arch: str) -> int:
    """How many programs for an architecture came with the package."""
    return len(_archive(path(arch))[1])


def has(template: Template, arch: str) -> bool:
    """Whether a program came with the package.

    Raises:
        OSError: if its source cannot be read.
    """
    places = _archive(path(arch))[1]
    return bool(places) and _key_of(template, arch) in places


def find(template: Template, arch: str) -> Program | None:
    """A program that came with the package; None if it did not.

    Raises:
        OSError: if its source cannot be read.
    """
    archive = path(arch)
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
        template=template, arch=target(template, arch), cubin=cubin, key=key, **asdict(fields)
    )


def target(template: Template, arch: str) -> str:
    """The compiler's target for a template on an architecture."""
    return f"{arch}a" if template.specific else arch


def path(arch: str) -> Path:
    """The archive of an architecture's programs."""
    return settings.programs_dir() / f"{arch}{SUFFIX}"


@lru_cache(maxsize=8)
def _archive(path: Path) -> tuple[int, Places]:
    """Where the programs of an archive start, and their places; none if there is no archive."""
    try:
        with reading.opened(path) as file:
            line = file.readline(limits.MANIFEST)
        places = decoding.convert(decoding.parse(line), Places, "programs")
    except (OSError, ValueError):
        return 0, {}
    return len(line), places


def _key_of(template: Template, arch: str) -> str:
    return _key(template, target(template, arch), source_hash(template.source))


def _key(template: Template, exact: str, source: str) -> str:
    parts = FORMAT, source, template.declaration + template.expression, exact
    return sha256(json.dumps(parts).encode()).hexdigest()
