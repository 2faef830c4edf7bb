"""Bundles of schema 1: still read, and refused with the reason if they are broken."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import pytest
from support.sample_compact_bundle import CHECKSUM, RANGE, RECORD, compact_document

from autotune.files import checksum
from autotune.records import bundle
from autotune.records.bundle import Bundle
from autotune.runners.base import Measurement


def sealed(document: Any) -> bytes:
    """The text of a document with a valid checksum."""
    return json.dumps(document | {checksum.CHECKSUM: checksum.of(document)}).encode()


def change(*path: str | int, value: object) -> bytes:
    document = compact_document()
    target: Any = document
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return sealed(document)


def test_document_matches_earlier_versions() -> None:
    assert checksum.of(compact_document()) == CHECKSUM


def test_records_and_ranges_are_read() -> None:
    assert bundle.loads(sealed(compact_document())) == Bundle((RECORD,), (RANGE,))


def test_layout_does_not_matter() -> None:
    text = json.dumps(json.loads(sealed(compact_document())), indent=4).encode()
    assert bundle.loads(text) == Bundle((RECORD,), (RANGE,))


ENTRY = ("records", 0, "entries", 0)
WHOLE = sealed(compact_document())
BROKEN = {
    "truncated": (WHOLE[:-30], "delimiter|Unterminated|Expecting"),
    "not text": (b"\xff\xfe\x00", "decode|codec"),
    "not an object": (b"[]", r"bundle is \[\]; it must be an object"),
    "deep": (b"[" * 100_000, "recursion"),
    "another schema": (change("schema", value=3), "schema is 3, this version reads 1"),
    "no records": (change("records", value=None), "records is None; it must be a list"),
    "a record of another type": (change("records", 0, value=[]), r"records\[0\] is \[\]; it must"),
    "no problem": (change("records", 0, "problem", value=None), r"records\[0\].problem is None"),
    "impossible problem": (change("records", 0, "problem", value="0x1x1"), "M is 0"),
    "no such device": (change("records", 0, "device", value=1), "device is 1 of 1"),
    "a device from behind": (change("records", 0, "device", value=-1), "device is -1 of 1"),
    "malformed device": (change("devices", 0, "sms", value="many"), "device field sms"),
    "unknown evidence": (change("records", 0, "evidence", value="hearsay"), "evidence 'hearsay'"),
    "made of nothing": (change("records", 0, "made", value=[]), "origin is None of 1"),
    "made at no time": (change("records", 0, "made", 1, value=None), "date is None"),
    "malformed origin": (change("origins", 0, value=[1]), r"origins\[0\]\[0\] is 1; it must be"),
    "short origin": (change("origins", 0, value=["13.0"]), "records.0.: provenance"),
    "no entries": (change("records", 0, "entries", value=[]), "without entries"),
    "an entry of another type": (change(*ENTRY, value=7), r"entries\[0\] is 7; it must be a list"),
    "no such form": (change(*ENTRY, 0, value=9), "form is 9 of 1"),
    "more values than names": (change(*ENTRY, 1, value="16,1"), "tiled has 1 parameters"),
    "no value": (change(*ENTRY, 1, value=""), "tiled has 1 parameters"),
    "an empty value": (change(*ENTRY, 1, value=","), "tiled has 1 parameters"),
    "values of another type": (change(*ENTRY, 1, value=[16]), r"\[1\] is \[16\]; it must be"),
    "malformed form": (change("forms", 0, value=["tiled", "a=1"]), "form is .*not a family"),
    "a form of nothing": (change("forms", 0, value=[]), " has 0 parameters"),
    "no such limiter": (change(*ENTRY, 5, value="registers"), r"\[5\] is 'registers'; it must be"),
    "time as a word": (change(*ENTRY, 2, 0, value="fast"), "time_us is 'fast'"),
    "time of zero": (change(*ENTRY, 2, 0, value=0), "time_us is 0; it must be a number > 0"),
    "time without end": (change(*ENTRY, 2, 0, value=10**400), "more than 64 digits"),
    "no time": (change(*ENTRY, 2, value=[]), r"measurement\.time_us is missing"),
    "too many times": (
        change(*ENTRY, 2, value=[1.0] * (len(fields(Measurement)) + 1)),
        f"Measurement is .* it has {len(fields(Measurement))} fields",
    ),
    "registers as a fraction": (change(*ENTRY, 3, 1, value=32.5), r"registers is 32\.5"),
    "malformed baseline": (change("records", 0, "baseline", value={}), "baseline is {}; it must"),
    "a range with a gap": (change("ranges", 0, "segments", 1, 0, value=70), "follows one that"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_document_is_refused_with_the_reason(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle.loads(text)


def test_changed_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"checksum is [0-9a-f]{12}, .*; it was changed"):
        bundle.loads(WHOLE.replace(b"900.0", b"100.0"))


def test_document_without_a_checksum_is_refused() -> None:
    with pytest.raises(ValueError, match="no checksum"):
        bundle.loads(json.dumps(compact_document()).encode())
