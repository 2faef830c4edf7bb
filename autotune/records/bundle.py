"""Many records and ranges in one file: JSON lines, compressed by xz.

    {"checksum":"…","devices":[{…}],"ranges":1,"records":2,"schema":2,"sha256":"…"}
    {"checksum":"…","baseline":{…},"device":{…},"entries":[{…},…],…}
    {"checksum":"…","baseline":{…},"device":{…},"entries":[{…},…],…}
    {"checksum":"…","device":{…},"dimension":"m",…}

The first line is the header: the devices of the records and ranges, how many lines of each follow,
and the SHA-256 of these lines. Each line is the content of an ordinary record or range file, so one
decoder reads both. The header tells whether a bundle serves a device before the rest is decoded,
and a record is decoded when it is asked for. Bundles of schema 1 are still read (see `compact`).

The header and every `PART` lines are compressed on their own. The header lists these parts, with
the problems of their records, so that a single record costs the decompression of one part. Bundles
of earlier versions are gzip, the first of them without such a list.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from autotune.device import Device
from autotune.files import checksum, limits
from autotune.files.compressed import expanded, first_stream, is_compressed
from autotune.files.decoding import convert, cut, parse, require_schema
from autotune.files.domains import Count, Text
from autotune.problem import Problem
from autotune.records import codec, compact, ranges
from autotune.records.ranges import Range
from autotune.records.record import Record

SCHEMA = 2
PART = 64
"""Lines of a part: 300 KB, which take two milliseconds to decompress."""
START = b'{"checksum":"'
"""The first bytes of a bundle's text."""
_HEADER_BYTES = 1 << 20  # more than a header of 400 devices and 10,000 problems


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle, in its order."""

    records: tuple[Record, ...]
    ranges: tuple[Range, ...] = ()


def dumps(records: Iterable[Record], tuned: Iterable[Range] = ()) -> bytes:
    """The file of records and ranges; the same content in the same order gives the same bytes.

    Raises:
        ValueError: if a number is not finite.
    """
    records, tuned = tuple(records), tuple(tuned)
    lines = [*map(codec.line, records), *map(ranges.line, tuned)]
    texts = [b"".join(line + b"\n" for line in part) for part in _parts(lines)]
    parts = [lzma.compress(text) for text in texts]
    body = b"".join(texts)
    devices = dict.fromkeys(
        [*(record.device for record in records), *(span.device for span in tuned)]
    )
    header = {
        "schema": SCHEMA,
        "devices": [device.to_json() for device in devices],
        "records": len(records),
        "ranges": len(tuned),
        "sha256": sha256(body).hexdigest(),
        "problems": [str(record.problem) for record in records],
        "parts": [
            {"bytes": len(part), "lines": text.count(b"\n"), "sha256": sha256(text).hexdigest()}
            for part, text in zip(parts, texts, strict=True)
        ],
    }
    return b"".join([lzma.compress(checksum.sealed(header) + b"\n"), *parts])


def _parts(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (lines[start : start + PART] for start in range(0, len(lines), PART))


def loads(data: bytes) -> Bundle:
    """The whole content of a file.

    Raises:
        ValueError: if the file is anything but a bundle with right checksums.
    """
    reader = BundleReader(data)
    return Bundle(tuple(reader.records()), tuple(reader.ranges()))


def is_bundle(data: bytes) -> bool:
    """Whether a file is a bundle rather than a single record, as far as its start tells.

    Raises:
        ValueError: if it is neither compressed nor JSON.
    """
    if is_compressed(data):
        return True
    document = parse(data)
    return isinstance(document, dict) and "records" in document


class BundleReader:
    """A bundle whose records are decoded when they are asked for.

    Args:
        data: the file.

    Raises:
        ValueError: here, if the header is broken or the schema is another one; in every method, if
            the rest is broken or its checksum is wrong.
    """

    def __init__(self, data: bytes) -> None:
        if not is_compressed(data):
            data = dumps(*compact.loads(data))
        self._data = data
        self._header, self._start = _read_header(data)
        self._decoded: dict[int, Record] = {}
        self._read_parts: dict[int, list[bytes]] = {}
        self.devices = tuple(Device.from_json(fields) for fields in self._header.devices)

    def records(self, serves: Callable[[Device], bool] | None = None) -> Iterator[Record]:
        """The records, or those of the devices for which `serves` is true."""
        for place, (_, raw_device) in enumerate(self._peeks):
            device = self._device(raw_device)
            if serves is None or serves(device):
                yield self._record(place)

    def record(self, serves: Callable[[Device], bool], problem: Problem) -> Record | None:
        """The last record of the problem for a device for which `serves` is true."""
        if self._in_parts:
            text, listed = str(problem), self._header.problems or ()
            places = [place for place, name in enumerate(listed) if name == text]
            records = (self._record(place) for place in reversed(places))
            return next(
                (
                    record
                    for record in records
                    if record.problem == problem and serves(self._listed(record.device))
                ),
                None,
            )
        for place in reversed(self._places.get(problem, ())):
            if serves(self._device(self._peeks[place][1])):
                return self._record(place)
        return None

    @property
    def content(self) -> str:
        """The hash of all records and ranges, as the header states it."""
        return self._header.sha256

    def ranges(self) -> Iterator[Range]:
        """The ranges."""
        if not self._header.ranges:
            return
        for line in self._lines[self._header.records :]:
            tuned = ranges.loads(line)
            self._listed(tuned.device)
            yield tuned

    def _record(self, place: int) -> Record:
        if place not in self._decoded:
            record = codec.loads(self._line(place))
            if not isinstance(record, Record):
                raise ValueError(f"line {place + 2} is a record of {record.title}, not a problem")
            self._decoded[place] = record
        return self._decoded[place]

    def _line(self, place: int) -> bytes:
        """A record's line, from its part alone if the header lists it."""
        if not self._in_parts:
            return self._lines[place]
        number, begins, first = 0, self._start, 0
        while first + self._header.parts[number].lines <= place:
            first += self._header.parts[number].lines
            begins += self._header.parts[number].bytes
            number += 1
        if number not in self._read_parts:
            part = self._header.parts[number]
            text = expanded(self._data[begins : begins + part.bytes], limits.BUNDLE_TEXT)
            if (actual := sha256(text).hexdigest()) != part.sha256:
                raise _changed(part.sha256, actual)
            self._read_parts[number] = text.splitlines()
        return self._read_parts[number][place - first]

    def _device(self, raw: bytes) -> Device:
        if raw not in self._devices_of:
            self._devices_of[raw] = self._listed(Device.from_json(parse(raw)))
        return self._devices_of[raw]

    def _listed(self, device: Device) -> Device:
        """The device, which the header has to list: it says whom the bundle serves."""
        if device not in self.devices:
            raise ValueError(f"it holds a record or range of {device.name}; its header does not")
        return device

    @cached_property
    def _in_parts(self) -> bool:
        """Whether the header lists all records, and parts that fill the file."""
        parts, problems = self._header.parts, self._header.problems
        if problems is None or len(problems) != self._header.records:
            return False
        size, lines = sum(part.bytes for part in parts), sum(part.lines for part in parts)
        rows = self._header.records + self._header.ranges
        return (self._start + size, lines) == (len(self._data), rows)

    @cached_property
    def _devices_of(self) -> dict[bytes, Device]:
        return {}

    @cached_property
    def _lines(self) -> list[bytes]:
        """The lines after the header."""
        _, _, body = expanded(self._data, limits.BUNDLE_TEXT).partition(b"\n")
        if (actual := sha256(body).hexdigest()) != self._header.sha256:
            raise _changed(self._header.sha256, actual)
        lines = body.splitlines()
        if len(lines) != self._header.records + self._header.ranges:
            raise ValueError(
                f"it has {len(lines)} lines, its header tells of {self._header.records} records "
                f"and {self._header.ranges} ranges"
            )
        return lines

    @cached_property
    def _peeks(self) -> list[tuple[Problem, bytes]]:
        """Problem and device of each record; the rest of the line is skipped."""
        peeks = []
        for number, line in enumerate(self._lines[: self._header.records], start=2):
            try:
                peek = _PEEK.decode(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number}: {cut(str(error))}") from error
            peeks.append((peek.problem, bytes(peek.device)))
        return peeks

    @cached_property
    def _places(self) -> dict[Problem, list[int]]:
        places: dict[Problem, list[int]] = {}
        for place, (problem, _) in enumerate(self._peeks):
            places.setdefault(problem, []).append(place)
        return places


class _Peek(msgspec.Struct):
    """The fields of a record's line that tell whether it is the one asked for."""

    problem: Problem
    device: msgspec.Raw


_PEEK = msgspec.json.Decoder(_Peek)


def _changed(stated: str, actual: str) -> ValueError:
    return ValueError(f"checksum is {stated[:12]}, its content has {actual[:12]}; it was changed")


@dataclass(frozen=True)
class _PartFields:
    """A part: its bytes in the file, its lines, and the hash of its text."""

    bytes: Count
    lines: Count
    sha256: Text


@dataclass(frozen=True)
class _Header:
    devices: tuple[dict[str, Any], ...]
    records: Count
    ranges: Count
    sha256: Text
    problems: tuple[Text, ...] | None = None
    parts: tuple[_PartFields, ...] = ()


def _read_header(data: bytes) -> tuple[_Header, int]:
    """The header, for which only the start of the file is decompressed, and where it ends."""
    start, end = first_stream(data, _HEADER_BYTES)
    line = start.partition(b"\n")[0]
    fields = require_schema(parse(line), "bundle", SCHEMA)
    checksum.check(fields, line)
    return convert(fields, _Header, "header"), end
