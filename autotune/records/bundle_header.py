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
class Submission:
    """What the records of a submitted bundle were measured with; several values are joined by
    commas.

    Attributes:
        device: name of the GPU.
        driver: the driver's CUDA version.
        toolkit: the compiler and its version.
        cublas: version of cuBLAS where the bundle was written; empty if it is not known.
        autotune: version of this package.
        date: of the latest record, UTC.
        source: hashes of the kernel sources.
    """

    device: Text
    driver: Text
    toolkit: Text
    cublas: Text
    autotune: Text
    date: Text
    source: Text

    def __str__(self) -> str:
        """One line, without the sources."""
        cublas = f"cuBLAS {self.cublas or 'unknown'}"
        tools = f"driver {self.driver or 'unknown'}", self.toolkit, cublas
        return ", ".join((self.device, *tools, f"autotune {self.autotune}", self.date))


@dataclass(frozen=True)
class Header:
    """The first line of a bundle."""

    devices: tuple[dict[str, Any], ...]
    records: Count
    ranges: Count
    sha256: Text
    problems: tuple[Text, ...] | None = None
    parts: tuple[PartFields, ...] = ()
    submission: Submission | None = None


def read_header(data: bytes) -> tuple[Header, int]:
    """The header, for which only the start of the file is decompressed, and where it ends."""
    start, end = first_stream(data, _HEADER_BYTES)
    line = start.partition(b"\n")[0]
    fields = require_schema(parse(line), "bundle", SCHEMA)
    checksum.check(fields, line)
    return convert(fields, Header, "header"), end
