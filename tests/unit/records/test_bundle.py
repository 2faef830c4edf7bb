"""Many records in one document: what was bundled is what is read, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sample_records import H100, entry, record, records

from autotune.device import find
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.records import Entry, Record, bundle, checksum
from autotune.records.ranges import Range, Segment
from autotune.records.rounding import rounded
from autotune.runners.base import Measurement

LOW = Range(
    H100, Problem(512, 4096, 4096, "bf16"), "m", (Segment(1, 64, 64), Segment(65, 512, 512)), 0.04
)
# A configuration of `wgmma` has 18 parameters, and a measured time as many digits as a float has.
CONFIG = Config.parse(
    "wgmma:swap=1,bm=224,bn=128,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=2x1,split_k=1,reduction=none,workers=132,"
    "store=staged,stages=3,group=8"
)


def _entry(number: int) -> Entry:
    time_us = 123.456789 + number / 7
    measured = Measurement(
        time_us, time_us / 900, 25, time_us * 1.3, 1.23e-3, 4.56e-2, 7.89e-4, time_us / 800
    )
    config = Config.of("wgmma", CONFIG.values | {"group": number})
    return Entry(config, measured, Resources(384, 168, 197_632, 0, 9), 0.1875, "shared memory")


def _many(count: int, entries: int = 5) -> list[Record]:
    own = tuple(_entry(number + 1) for number in range(entries))
    return [
        record(*own, problem=Problem(64 + number, 4096, 4096, "bf16"), baseline_us=700 / 9)
        for number in range(count)
    ]


@settings(deadline=None)  # Generating a record is what takes time.
@given(st.lists(records(), max_size=4))
def test_records_survive_their_bundle(some: list[Record]) -> None:
    assert bundle.loads(bundle.dumps(some)).records == tuple(some)


def test_ranges_survive_their_bundle() -> None:
    there = replace(LOW, device=find("t4"))
    assert bundle.loads(bundle.dumps([record()], [LOW, there])).ranges == (LOW, there)


def test_nothing_is_a_bundle_too() -> None:
    assert bundle.loads(bundle.dumps([])) == bundle.Bundle((), ())


def test_a_device_stands_once_for_all_its_records_and_ranges() -> None:
    text = bundle.dumps(_many(20), [LOW])
    assert text.count(H100.name.encode()) == 1


def test_a_record_of_five_configurations_takes_a_kilobyte() -> None:
    some = [rounded(one) for one in _many(100)]
    assert len(bundle.dumps(some)) <= 100 * 1024


def test_what_is_rounded_stays_within_a_spread() -> None:
    (exact,) = _many(1)
    best, short = exact.best.measurement, rounded(exact).best.measurement
    assert 0 < abs(short.time_us - best.time_us) < best.spread_us / 50


def _seconds(act: Callable[[], object]) -> float:
    """The least of ten times, so that a busy machine matters less."""
    seconds = []
    for _ in range(10):
        began = process_time()
        act()
        seconds.append(process_time() - began)
    return min(seconds)


def test_reading_takes_no_more_than_ten_times_as_long_as_its_json() -> None:
    """300 records: 40 ms where the JSON takes 7."""
    text = bundle.dumps(_many(300))
    assert _seconds(lambda: bundle.loads(text)) < 10 * _seconds(lambda: json.loads(text))


# Broken bundles


def _sealed(change: Callable[[Any], object]) -> bytes:
    """A bundle that was changed by somebody who knows how to make its checksum."""
    data = json.loads(bundle.dumps([record(entry(16, 900.0), baseline_us=800.0)], [LOW]))
    change(data)
    data[checksum.CHECKSUM] = checksum.of(data)
    return json.dumps(data).encode()


def _set(*path: str | int, to: object) -> bytes:
    def change(data: Any) -> None:
        for step in path[:-1]:
            data = data[step]
        data[path[-1]] = to

    return _sealed(change)


ENTRY = ("records", 0, "entries", 0)
BROKEN = {
    "empty": (b"", "Expecting value"),
    "truncated": (bundle.dumps([record()])[:-30], "delimiter|Unterminated|Expecting"),
    "not text": (b"\xff\xfe\x00", "decode|codec"),
    "not an object": (b"[]", "bundle is not an object"),
    "deep": (b"[" * 100_000, "recursion"),
    "another schema": (_set("schema", to=2), "schema is 2, this version reads 1"),
    "no records": (_set("records", to=None), "records is not a list"),
    "a record of another type": (_set("records", 0, to=[]), "record is not an object"),
    "no problem": (_set("records", 0, "problem", to=None), "problem is None"),
    "impossible problem": (_set("records", 0, "problem", to="0x1x1"), "M is 0"),
    "no such device": (_set("records", 0, "device", to=1), "device is 1 of 1"),
    "a device from behind": (_set("records", 0, "device", to=-1), "device is -1 of 1"),
    "malformed device": (_set("devices", 0, "sms", to="many"), "device field sms"),
    "unknown evidence": (_set("records", 0, "evidence", to="hearsay"), "evidence is 'hearsay'"),
    "made of nothing": (_set("records", 0, "made", to=[]), "origin is None of 1"),
    "made at no time": (_set("records", 0, "made", 1, to=None), "date is None"),
    "malformed origin": (_set("origins", 0, to=[1]), r"origin is \[1\]; not a list of texts"),
    "short origin": (_set("origins", 0, to=["13.0"]), "compiler|Provenance|source"),
    "no entries": (_set("records", 0, "entries", to=[]), "without entries"),
    "an entry of another type": (_set(*ENTRY, to=7), "entry is not a list of six"),
    "no such form": (_set(*ENTRY, 0, to=9), "form is 9 of 1"),
    "more values than names": (_set(*ENTRY, 1, to="16,1"), "tiled has 1 parameters"),
    "no value": (_set(*ENTRY, 1, to=""), "tiled has 1 parameters"),
    "an empty value": (_set(*ENTRY, 1, to=","), "malformed configuration"),
    "values of another type": (_set(*ENTRY, 1, to=[16]), "tiled has 1 parameters"),
    "malformed form": (_set("forms", 0, to=["tiled", "a=1"]), "form is"),
    "a form of nothing": (_set("forms", 0, to=[]), "malformed|form is"),
    "no such limiter": (_set(*ENTRY, 5, to="registers"), "limiter is 'registers' of 1"),
    "time as a word": (_set(*ENTRY, 2, 0, to="fast"), "time_us is 'fast'"),
    "time of zero": (_set(*ENTRY, 2, 0, to=0), "time_us is 0.0, not a time"),
    "time without end": (_set(*ENTRY, 2, 0, to=10**400), "too large"),
    "no time": (_set(*ENTRY, 2, to=[]), r"Measurement is \[\]"),
    "too many times": (_set(*ENTRY, 2, to=[1.0] * 9), "Measurement is"),
    "registers as a fraction": (_set(*ENTRY, 3, 1, to=32.5), "registers is 32.5"),
    "malformed baseline": (_set("records", 0, "baseline", to={}), "Measurement is {}"),
    "a range with a gap": (_set("ranges", 0, "segments", 1, 0, to=70), "follows one that ends"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_broken_bundle_is_refused_with_the_reason(text: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle.loads(text)


def test_a_time_that_was_changed_is_refused() -> None:
    text = bundle.dumps([record(entry(16, 900.5))])
    with pytest.raises(ValueError, match=r"checksum is [0-9a-f]{12}, .*; it was changed"):
        bundle.loads(text.replace(b"900.5", b"100.5"))


def test_a_bundle_without_a_checksum_is_refused() -> None:
    data = json.loads(bundle.dumps([record()]))
    del data[checksum.CHECKSUM]
    with pytest.raises(ValueError, match="no checksum"):
        bundle.loads(json.dumps(data).encode())


def test_a_bundle_that_was_laid_out_anew_is_the_same() -> None:
    text = bundle.dumps([record()], [LOW])
    assert bundle.loads(json.dumps(json.loads(text), indent=4).encode()) == bundle.loads(text)
