"""Many records and ranges in one file: JSON lines, compressed by xz.

    {"checksum":"…","devices":[{…}],"ranges":1,"records":2,"schema":2,"sha256":"…"}
    {"checksum":"…","baseline":{…},"device":{…},"entries":[{…},…],…}
    {"checksum":"…","baseline":{…},"device":{…},"entries":[{…},…],…}
    {"checksum":"…","device":{…},"dimension":"m",…}

The first line is the header: the devices of the records and ranges, how many lines of each follow,
and the SHA-256 of these lines. Each line is the content of an ordinary record or range file, so one
decoder reads both. The header tells whether a bundle serves a device before the rest is decoded,
and a record is decoded when it is asked for.

The header and every `PART` lines are compressed on their own. The header lists these parts, with
the problems of their records, so that a single record costs the decompression of one part.

A file of more than `CHUNK` records and ranges is several bundles in a row, written and read one
after the other, so that any number of records takes the memory of one bundle.
"""

from __future__ import annotations

import io
import lzma
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import accumulate, chain, islice
from typing import Any, BinaryIO

from autotune.device import Device
from autotune.files import checksum, limits
from autotune.files.decoding import Count, Text, convert, parse, require_schema
from autotune.files.reading import expanded, first_stream, is_compressed
from autotune.problem import Problem
from autotune.records import codec, ranges
from autotune.records.ranges import Range
from autotune.records.record import Record, first_of_best

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
    """The tools that measured the records of a submitted bundle; several values are joined by
    commas.

    Attributes:
        device: name of the GPU.
        driver: the driver's CUDA version.
        toolkit: the compiler and its version.
        cublas: version of cuBLAS where the bundle was written; empty if it is not known.
        autotune: version of this package.
        date: date of the latest record, UTC.
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
        """The record as one line, without the sources."""
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
    problems: tuple[Text, ...]
    parts: tuple[PartFields, ...]
    submission: Submission | None = None


def read_header(data: bytes) -> tuple[Header, int]:
    """The header, for which only the start of the file is decompressed, and where it ends.

    Raises:
        ValueError: if it is broken or of another schema.
    """
    if not is_compressed(data):
        raise ValueError("it is not a bundle, which is compressed by xz")
    start, end = first_stream(data, _HEADER_BYTES)
    line = start.partition(b"\n")[0]
    fields = require_schema(parse(line), "bundle", SCHEMA)
    checksum.check(fields, line)
    return convert(fields, Header, "header"), end


PART = 64
"""Lines of a part: 300 KB, which take two milliseconds to decompress."""
CHUNK = 2048
"""Most records and ranges of a bundle that `written` makes."""


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle, in its order, and what a submission was measured with."""

    records: Sequence[Record]
    ranges: Sequence[Range] = ()
    submission: Submission | None = None


def written(content: Bundle) -> Iterator[bytes]:
    """The pieces of the file of any number of records and ranges, each made when it is asked for.

    Raises:
        ValueError: if a number is not finite.
    """
    items: Iterator[Record | Range] = chain(content.records, content.ranges)
    while chunk := tuple(islice(items, CHUNK)):
        tuned = [item for item in chunk if isinstance(item, Range)]
        records = [item for item in chunk if not isinstance(item, Range)]
        yield dumps(records, tuned, content.submission)


def dumps(
    records: Iterable[Record], tuned: Iterable[Range] = (), submission: Submission | None = None
) -> bytes:
    """One bundle of records and ranges; the same content in the same order gives the same bytes.

    Raises:
        ValueError: if a number is not finite.
    """
    records, tuned = tuple(records), tuple(tuned)
    lines = [*map(codec.line, records), *map(ranges.line, tuned)]
    texts = [
        b"".join(line + b"\n" for line in lines[start : start + PART])
        for start in range(0, len(lines), PART)
    ]
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
    } | ({"submission": asdict(submission)} if submission else {})
    return b"".join([lzma.compress(checksum.sealed(header) + b"\n"), *parts])


def loads(data: bytes) -> Bundle:
    """The whole content of a file.

    Raises:
        ValueError: if the file is anything but bundles with right checksums.
    """
    readers = [*map(BundleReader, chunks(io.BytesIO(data)))]
    items = [*chain.from_iterable(readers)]
    tuned = tuple(item for item in items if isinstance(item, Range))
    records = tuple(item for item in items if isinstance(item, Record))
    return Bundle(records, tuned, readers[0].header.submission)


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
        header, start = read_header(data)
        size = start + sum(part.bytes for part in header.parts)
        if size > limits.BUNDLE:
            raise ValueError(f"it has a bundle of more than {limits.BUNDLE} bytes")
        yield data[:size]
        data = data[size:] + file.read(size)
        if not data:
            return


class BundleReader:
    """A bundle whose records are decoded when they are asked for.

    Attributes:
        header: the first line; its `sha256` is the hash of all records and ranges.

    Args:
        data: the bundle.
        most: bytes to which the parts that are read may expand together; None is any number.

    Raises:
        ValueError: here, if the header is broken or the schema is another one; in every method, if
            the rest is broken, larger than `most`, or its checksum is wrong.
    """

    def __init__(self, data: bytes, most: int | None = None) -> None:
        self._data, self._most = data, most
        self.header, start = read_header(data)
        parts = self.header.parts
        self._starts = [*accumulate((part.bytes for part in parts), initial=start)]
        self._firsts = [*accumulate((part.lines for part in parts), initial=0)]
        self._decoded: dict[int, Record] = {}
        self._kept: dict[int, list[bytes]] = {}
        self._sizes: dict[int, int] = {}
        self.devices = tuple(Device.from_json(fields) for fields in self.header.devices)
        if self._starts[-1] != len(data):
            raise ValueError("it was cut short or appended to")
        if self._firsts[-1] != self.header.records + self.header.ranges:
            raise self._miscounted(self._firsts[-1])
        if len(self.header.problems) != self.header.records:
            raise ValueError(
                f"its header lists {len(self.header.problems)} problems and tells of "
                f"{self.header.records} records"
            )

    def __len__(self) -> int:
        """The number of its records."""
        return self.header.records

    def __iter__(self) -> Iterator[Record | Range]:
        """The records, those in an order of summation too, then the ranges."""
        for place, line in enumerate(self._lines()):
            if place < self.header.records:
                yield self._record(place, line)
            else:
                yield self._range(line)

    def records(self, serves: Callable[[Device], bool] | None = None) -> Iterator[Record]:
        """The records that look-ups take, of all devices or those for which `serves` is true."""
        for place, line in enumerate(islice(self._lines(), self.header.records)):
            record = self._record(place, line)
            if type(record) is Record and (serves is None or serves(record.device)):
                yield record

    def record(self, serves: Callable[[Device], bool], problem: Problem) -> Record | None:
        """The record of the problem with the best evidence, of equals the last, for a device for
        which `serves` is true."""
        text = str(problem)
        places = [place for place, name in enumerate(self.header.problems) if name == text]
        for place in {*places} - self._decoded.keys():
            self._decoded[place] = self._record(place, self._line(place))
        named = (self._decoded[place] for place in reversed(places))
        own = (each for each in named if (type(each), each.problem) == (Record, problem))
        return first_of_best(each for each in own if serves(each.device))

    def ranges(self) -> Iterator[Range]:
        """The ranges."""
        if self.header.ranges:
            yield from map(self._range, islice(self._lines(), self.header.records, None))

    def _lines(self) -> Iterator[bytes]:
        whole = sha256()
        for number in range(len(self.header.parts)):
            lines = self._part(number)
            for line in lines:
                whole.update(line + b"\n")
            yield from lines
        if (actual := whole.hexdigest()) != self.header.sha256:
            raise _changed(self.header.sha256, actual)

    def _line(self, place: int) -> bytes:
        """A record's line. Its part is kept."""
        number = bisect_right(self._firsts, place) - 1
        if number not in self._kept:
            self._kept[number] = self._part(number)
        return self._kept[number][place - self._firsts[number]]

    def _part(self, number: int) -> list[bytes]:
        part, begin = self.header.parts[number], self._starts[number]
        most = min(part.lines * limits.RECORD, limits.BUNDLE_TEXT)
        text = expanded(self._data[begin : begin + part.bytes], most)
        if (actual := sha256(text).hexdigest()) != part.sha256:
            raise _changed(part.sha256, actual)
        self._sizes[number] = len(text)
        if self._most is not None and sum(self._sizes.values()) > self._most:
            raise ValueError(f"its records take more than {self._most} bytes; {IMPORT_IT}")
        if (count := text.count(b"\n")) != part.lines:
            raise self._miscounted(count)
        return text.split(b"\n")[:-1]

    def _miscounted(self, count: int) -> ValueError:
        header = self.header
        stated = f"{header.records} records and {header.ranges} ranges"
        return ValueError(f"it has {count} lines, its header tells of {stated}")

    def _record(self, place: int, line: bytes) -> Record:
        try:
            record = codec.loads(line)
        except ValueError as error:
            raise ValueError(f"line {place + 2}: {error}") from error
        if not isinstance(record, Record):
            raise ValueError(f"line {place + 2} is a record of {record.title}, not a problem")
        self._require_listed(record.device)
        return record

    def _range(self, line: bytes) -> Range:
        tuned = ranges.loads(line)
        self._require_listed(tuned.device)
        return tuned

    def _require_listed(self, device: Device) -> None:
        """Refuses a device that the header does not list: it says whom the bundle serves."""
        if device not in self.devices:
            raise ValueError(f"it holds a record or range of {device.name}; its header does not")


IMPORT_IT = "look-ups read no more of a file; `autotune cache import` takes all of it"
"""Advice for a file that is too large for look-ups."""


def _changed(stated: str, actual: str) -> ValueError:
    return ValueError(f"checksum is {stated[:12]}, its content has {actual[:12]}; it was changed")
