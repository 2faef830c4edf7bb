"""The header of a bundle (see `bundle`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.files import checksum
from autotune.files.compressed import first_stream
from autotune.files.decoding import convert, parse, require_schema
from autotune.files.domains import Count, Text

SCHEMA = 2
START = b'{"checksum":"'
"""The first bytes of a bundle's text."""
_HEADER_BYTES = 4 << 20  # more than a header of `CHUNK` devices and problems of 2 KB


@dataclass(frozen=True)
class PartFields:
    """A part: its bytes in the file, its lines, and the hash of its text."""

    bytes: Count
    lines: Count
    sha256: Text


@dataclass(frozen=True)
class Header:
    """The first line of a bundle."""

    devices: tuple[dict[str, Any], ...]
    records: Count
    ranges: Count
    sha256: Text
    problems: tuple[Text, ...] | None = None
    parts: tuple[PartFields, ...] = ()


def read_header(data: bytes) -> tuple[Header, int]:
    """The header, for which only the start of the file is decompressed, and where it ends."""
    start, end = first_stream(data, _HEADER_BYTES)
    line = start.partition(b"\n")[0]
    fields = require_schema(parse(line), "bundle", SCHEMA)
    checksum.check(fields, line)
    return convert(fields, Header, "header"), end
