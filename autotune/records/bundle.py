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

A file of more than `CHUNK` records and ranges is several bundles in a row, written and read one
after the other, so that any number of records takes the memory of one bundle.
"""

from __future__ import annotations

import io
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from hashlib import sha256
from itertools import accumulate, chain, islice
from typing import BinaryIO

import msgspec

from autotune.device import Device
from autotune.files import limits
from autotune.files.compressed import expanded, is_compressed
from autotune.files.decoding import cut, parse
from autotune.problem import Problem
from autotune.records import codec, compact, ranges
from autotune.records.bundle_header import SCHEMA, PartFields, Submission, read_header
from autotune.records.bundle_writing import CHUNK, PART, Bundle, dumps, written
from autotune.records.ranges import Range
from autotune.records.record import Record
from autotune.records.standing import first_of_best

__all__ = [
    "CHUNK",
    "PART",
    "SCHEMA",
    "Bundle",
    "BundleReader",
    "Submission",
    "chunks",
    "dumps",
    "is_bundle",
    "loads",
    "read",
    "written",
]


def loads(data: bytes) -> Bundle:
    """The whole content of a file.

    Raises:
        ValueError: if the file is anything but bundles with right checksums.
    """
    readers = [*map(BundleReader, chunks(io.BytesIO(data)))]
    items = [*chain.from_iterable(readers)]
    tuned = tuple(item for item in items if isinstance(item, Range))
    records = tuple(item for item in items if isinstance(item, Record))
    return Bundle(records, tuned, readers[0].submission)


def read(file: BinaryIO) -> Iterator[Record | Range]:
    """The content of a file, read one bundle after the other.

    Raises:
        ValueError: at the first record or bundle that is broken or has a wrong checksum.
    """
    for data in chunks(file):
        yield from BundleReader(data)


def chunks(file: BinaryIO) -> Iterator[bytes]:
    """The bundles of a file, of at most `limits.BUNDLE` bytes each.

    Raises:
        ValueError: if a header is broken, or a bundle is larger.
    """
    data = file.read(limits.BUNDLE + 1)
    while True:
        size = _size(data)
        if size > limits.BUNDLE:
            raise ValueError(f"it has a bundle of more than {limits.BUNDLE} bytes")
        yield data[:size]
        data = data[size:] + file.read(size)
        if not data:
            return


def _size(data: bytes) -> int:
    """The bytes of the first bundle: all, unless its header lists parts that end before."""
    if not is_compressed(data):
        return len(data)
    header, start = read_header(data)
    end = start + sum(part.bytes for part in header.parts)
    return end if header.parts and end < len(data) else len(data)


def is_bundle(start: bytes) -> bool:
    """Whether a file is a bundle rather than a single record, as far as its start tells.

    Raises:
        ValueError: if it is neither compressed nor JSON.
    """
    if is_compressed(start):
        return True
    document = parse(start)
    return isinstance(document, dict) and "records" in document


class BundleReader:
    """A bundle whose records are decoded when they are asked for.

    Args:
        data: the bundle.
        most: bytes to which the parts that are read may expand together; None is any number.

    Raises:
        ValueError: here, if the header is broken or the schema is another one; in every method, if
            the rest is broken, larger than `most`, or its checksum is wrong.
    """

    def __init__(self, data: bytes, most: int | None = None) -> None:
        if not is_compressed(data):
            data = dumps(*compact.loads(data))
        self._data, self._most = data, most
        self._header, self._start = read_header(data)
        self._decoded: dict[int, Record] = {}
        self._kept: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self._devices_of: dict[bytes, Device] = {}
        self.devices = tuple(Device.from_json(fields) for fields in self._header.devices)

    def __len__(self) -> int:
        """The number of its records."""
        return self._header.records

    def __iter__(self) -> Iterator[Record | Range]:
        """The records, those in an order of summation too, then the ranges."""
        for place, line in enumerate(self._lines()):
            if place < self._header.records:
                self._peek(place, line)
                yield self._record(place, line)
            else:
                yield self._range(line)

    def records(self, serves: Callable[[Device], bool] | None = None) -> Iterator[Record]:
        """The records that look-ups take, of all devices or those for which `serves` is true."""
        for place, line in enumerate(islice(self._lines(), self._header.records)):
            _, device = self._peek(place, line)
            if serves is None or serves(device):
                record = self._record(place, line)
                if type(record) is Record:
                    yield record

    def record(self, serves: Callable[[Device], bool], problem: Problem) -> Record | None:
        """The record of the problem with the best evidence, of equals the last, for a device for
        which `serves` is true."""
        text = str(problem)
        places = [place for place, name in enumerate(self._names) if name == text]
        for place in {*places} - self._decoded.keys():
            self._decoded[place] = self._record(place, self._line(place))
        named = (self._decoded[place] for place in reversed(places))
        own = (each for each in named if (type(each), each.problem) == (Record, problem))
        return first_of_best(each for each in own if serves(self._listed(each.device)))

    @property
    def content(self) -> str:
        """The hash of all records and ranges, as the header states it."""
        return self._header.sha256

    @property
    def submission(self) -> Submission | None:
        """What the records were measured with, if they were submitted."""
        return self._header.submission

    def ranges(self) -> Iterator[Range]:
        """The ranges."""
        if self._header.ranges:
            yield from map(self._range, islice(self._lines(), self._header.records, None))

    def _lines(self) -> Iterator[bytes]:
        """The lines after the header, part by part."""
        whole = sha256()
        for number in range(len(self._parts)):
            lines = self._part(number)
            for line in lines:
                whole.update(line + b"\n")
            yield from lines
        if (actual := whole.hexdigest()) != self._header.sha256:
            raise _changed(self._header.sha256, actual)

    def _line(self, place: int) -> bytes:
        """A record's line. Its part is kept."""
        number = bisect_right(self._firsts, place) - 1
        if number not in self._kept:
            self._kept[number] = self._part(number)
        return self._kept[number][place - self._firsts[number]]

    def _part(self, number: int) -> list[bytes]:
        """The lines of a part."""
        part = self._parts[number]
        if self._in_parts:
            begin = self._start + sum(earlier.bytes for earlier in self._parts[:number])
            most = min(part.lines * limits.RECORD, limits.BUNDLE_TEXT)
            text = expanded(self._data[begin : begin + part.bytes], most)
        else:
            text = expanded(self._data, limits.BUNDLE_TEXT).partition(b"\n")[2]
        if (actual := sha256(text).hexdigest()) != part.sha256:
            raise _changed(part.sha256, actual)
        self._sizes[number] = len(text)
        if self._most is not None and sum(self._sizes.values()) > self._most:
            raise ValueError(f"its records take more than {self._most} bytes; {IMPORT_IT}")
        if (count := text.count(b"\n")) != part.lines:
            raise ValueError(
                f"it has {count} lines, its header tells of {self._header.records} records and "
                f"{self._header.ranges} ranges"
            )
        return text.split(b"\n")[:-1]

    def _peek(self, place: int, line: bytes) -> tuple[Problem, Device]:
        """Problem and device of a record; the rest of the line is skipped."""
        try:
            peek = _PEEK.decode(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"line {place + 2}: {cut(str(error))}") from error
        raw = bytes(peek.device)
        if raw not in self._devices_of:
            self._devices_of[raw] = self._listed(Device.from_json(parse(raw)))
        return peek.problem, self._devices_of[raw]

    def _record(self, place: int, line: bytes) -> Record:
        record = codec.loads(line)
        if not isinstance(record, Record):
            raise ValueError(f"line {place + 2} is a record of {record.title}, not a problem")
        return record

    def _range(self, line: bytes) -> Range:
        tuned = ranges.loads(line)
        self._listed(tuned.device)
        return tuned

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
    def _parts(self) -> tuple[PartFields, ...]:
        """The parts that the header lists, else the whole as one."""
        header = self._header
        if self._in_parts:
            return header.parts
        return (PartFields(len(self._data), header.records + header.ranges, header.sha256),)

    @cached_property
    def _firsts(self) -> list[int]:
        """The place of each part's first line."""
        return [0, *accumulate(part.lines for part in self._parts)][:-1]

    @cached_property
    def _names(self) -> Sequence[str]:
        """The text of each record's problem."""
        if self._in_parts:
            return self._header.problems or ()
        lines = islice(self._lines(), self._header.records)
        return [str(self._peek(place, line)[0]) for place, line in enumerate(lines)]


IMPORT_IT = "look-ups read no more of a file; `autotune cache import` takes all of it"
"""What to do about a file that is too large for look-ups."""


class _Peek(msgspec.Struct):
    """The fields of a record's line that tell whether it is the one asked for."""

    problem: Problem
    device: msgspec.Raw


_PEEK = msgspec.json.Decoder(_Peek)


def _changed(stated: str, actual: str) -> ValueError:
    return ValueError(f"checksum is {stated[:12]}, its content has {actual[:12]}; it was changed")
