"""Writes bundles; `bundle` describes and reads them."""

from __future__ import annotations

import lzma
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import chain, islice

from autotune.files import checksum
from autotune.records import codec, ranges
from autotune.records.bundle_header import SCHEMA, Submission
from autotune.records.ranges import Range
from autotune.records.record import Record

PART = 64
"""Lines of a part: 300 KB, which take two milliseconds to decompress."""
CHUNK = 2048
"""Most records and ranges of a bundle that `written` makes."""


@dataclass(frozen=True)
class Bundle:
    """The content of a bundle, in its order, and what a submission was measured with."""

    records: Collection[Record]
    ranges: Collection[Range] = ()
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
    records: Iterable[Record],
    tuned: Iterable[Range] = (),
    submission: Submission | None = None,
) -> bytes:
    """One bundle of records and ranges; the same content in the same order gives the same bytes.

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
    } | ({"submission": asdict(submission)} if submission else {})
    return b"".join([lzma.compress(checksum.sealed(header) + b"\n"), *parts])


def _parts(lines: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    return (lines[start : start + PART] for start in range(0, len(lines), PART))
