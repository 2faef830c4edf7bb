"""Many records and ranges in one file: gzip of JSON lines.

    {"checksum":"…","devices":[{…}],"ranges":1,"records":2,"schema":2,"sha256":"…"}
    {"checksum":"…","baseline":{…},"device":{…},"entries":[{…},…],…}
    {"checksum":"…","baseline":{…},"device":{…},"entries":[{…},…],…}
    {"checksum":"…","device":{…},"dimension":"m",…}

The first line is the header: the devices of the records and ranges, how many lines of each follow,
and the SHA-256 of these lines. Each line is the content of an ordinary record or range file, so one
decoder reads both. The header tells whether a bundle serves a device before the rest is decoded,
and a record is decoded when it is asked for. Bundles of schema 1 are still read (see `compact`).
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import msgspec

from autotune.device import Device
from autotune.files import checksum, limits
from autotune.files.decoding import convert, cut, gunzip, parse, require_schema
from autotune.files.domains import Count, Text
from autotune.problem import Problem
from autotune.records import codec, compact, ranges
from autotune.records.ranges import Range
from autotune.records.record import Record

SCHEMA = 2
_GZIP = b"\x1f\x8b"
_HEADER_BYTES = 1 << 18  # more than a header of 400 devices


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
    body = b"".join(line + b"\n" for line in lines)
    devices = dict.fromkeys(
        [*(record.device for record in records), *(span.device for span in tuned)]
    )
    header = {
        "schema": SCHEMA,
        "devices": [device.to_json() for device in devices],
        "records": len(records),
        "ranges": len(tuned),
        "sha256": sha256(body).hexdigest(),
    }
    return gzip.compress(checksum.sealed(header) + b"\n" + body, mtime=0)


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
        ValueError: if it is neither gzip nor JSON.
    """
    if data.startswith(_GZIP):
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
        if not data.startswith(_GZIP):
            data = dumps(*compact.loads(data))
        self._data = data
        self._header = _read_header(data)
        self._decoded: dict[int, Record] = {}
        self.devices = tuple(Device.from_json(fields) for fields in self._header.devices)

    def records(self, serves: Callable[[Device], bool] | None = None) -> Iterator[Record]:
        """The records, or those of the devices for which `serves` is true."""
        for place, (_, raw_device) in enumerate(self._peeks):
            device = self._device(raw_device)
            if serves is None or serves(device):
                yield self._record(place)

    def record(self, serves: Callable[[Device], bool], problem: Problem) -> Record | None:
        """The last record of the problem for a device for which `serves` is true."""
        for place in reversed(self._places.get(problem, ())):
            if serves(self._device(self._peeks[place][1])):
                return self._record(place)
        return None

    def ranges(self) -> Iterator[Range]:
        """The ranges."""
        for line in self._lines[self._header.records :]:
            tuned = ranges.loads(line)
            self._listed(tuned.device)
            yield tuned

    def _record(self, place: int) -> Record:
        if place not in self._decoded:
            record = codec.loads(self._lines[place])
            if not isinstance(record, Record):
                raise ValueError(f"line {place + 2} is a record of {record.title}, not a problem")
            self._decoded[place] = record
        return self._decoded[place]

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
    def _devices_of(self) -> dict[bytes, Device]:
        return {}

    @cached_property
    def _lines(self) -> list[bytes]:
        """The lines after the header."""
        _, _, body = gunzip(self._data, limits.BUNDLE_TEXT).partition(b"\n")
        if (actual := sha256(body).hexdigest()) != self._header.sha256:
            stated = self._header.sha256[:12]
            raise ValueError(f"checksum is {stated}, its content has {actual[:12]}; it was changed")
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


@dataclass(frozen=True)
class _Header:
    devices: tuple[dict[str, Any], ...]
    records: Count
    ranges: Count
    sha256: Text


def _read_header(data: bytes) -> _Header:
    """The header, for which only the start of the file is decompressed."""
    try:
        start = zlib.decompressobj(wbits=31).decompress(data, _HEADER_BYTES)
    except zlib.error as error:
        raise ValueError(f"it is not gzip: {error}") from error
    line = start.partition(b"\n")[0]
    fields = require_schema(parse(line), "bundle", SCHEMA)
    checksum.check(fields, line)
    return convert(fields, _Header, "header")
