"""Bundles: records and ranges survive, and a broken file is refused with the reason."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import tracemalloc
from collections.abc import Callable
from dataclasses import asdict, replace
from hashlib import sha256
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sample_records import H100, entry, record, records

from autotune.device import Device, find
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files import checksum, reading
from autotune.measure.measurement import Measurement
from autotune.problem import Problem
from autotune.records import Entry, Record, TuningRecord, bundle, codec
from autotune.records.bundle import BundleReader, read_header
from autotune.records.ranges import Range, Segment

LOW = Range(
    H100, Problem(512, 4096, 4096, "bf16"), "m", (Segment(1, 64, 64), Segment(65, 512, 512))
)


# A wgmma configuration has 18 parameters; a measured time has all digits of a float.
CONFIG = Config.parse(
    "wgmma:swap=1,bm=224,bn=128,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=2x1,split_k=1,reduction=none,workers=132,"
    "store=staged,stages=3,group=8"
)


def long_entry(number: int) -> Entry:
    time_us = 123.456789 + number / 7
    measured = Measurement(
        time_us, time_us / 900, 25, time_us * 1.3, 1.23e-3, 4.56e-2, 7.89e-4, time_us / 800
    )
    config = Config.of("wgmma", CONFIG.values | {"group": number})
    return Entry(config, measured, Resources(384, 168, 197_632, 0, 9), 0.1875, "shared memory")


def long_records(count: int, entries: int = 5) -> list[Record]:
    own = tuple(long_entry(number + 1) for number in range(entries))
    return [
        record(*own, problem=Problem(64 + number, 4096, 4096, "bf16"), baseline_us=700 / 9)
        for number in range(count)
    ]


@settings(max_examples=30)
@given(st.lists(records(), max_size=4))
def test_records_survive_their_bundle(originals: list[Record]) -> None:
    assert bundle.loads(bundle.dumps(originals)).records == tuple(originals)


def test_ranges_survive_their_bundle() -> None:
    on_t4 = replace(LOW, device=find("t4"))
    assert bundle.loads(bundle.dumps([record()], [LOW, on_t4])).ranges == (LOW, on_t4)


def test_empty_bundle_is_read() -> None:
    assert bundle.loads(bundle.dumps([])) == bundle.Bundle((), ())


def test_same_content_gives_the_same_bytes() -> None:
    assert bundle.dumps(long_records(3), [LOW]) == bundle.dumps(long_records(3), [LOW])


def test_each_line_is_an_ordinary_record() -> None:
    _, line = lzma.decompress(bundle.dumps([record()])).splitlines()
    assert codec.loads(line) == record()


def test_record_is_read_from_its_part_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    originals = long_records(3 * bundle.PART, 1)
    data = bundle.dumps(originals)
    read: list[int] = []

    def counted(part: bytes, limit: int) -> bytes:
        read.append(len(part))
        return reading.expanded(part, limit)

    monkeypatch.setattr("autotune.records.bundle.expanded", counted)
    asked = originals[bundle.PART + 1]
    assert BundleReader(data).record(lambda _: True, asked.problem) == asked
    assert len(read) == 1
    assert read[0] < len(data) / 2


def test_part_with_fewer_lines_than_stated_is_refused() -> None:
    originals = long_records(2)
    data = bundle.dumps(originals)
    line = codec.line(originals[0]) + b"\n"
    header = json.loads(lzma.decompress(data).split(b"\n")[0])
    part = lzma.compress(line)
    stated = {"bytes": len(part), "lines": 2, "sha256": sha256(line).hexdigest()}
    del header[checksum.CHECKSUM]
    short = lzma.compress(checksum.sealed(header | {"parts": [stated]}) + b"\n") + part
    with pytest.raises(ValueError, match="it has 1 lines, its header tells of 2 records"):
        BundleReader(short).record(lambda _: True, originals[1].problem)


def test_absent_record_costs_no_decompression(monkeypatch: pytest.MonkeyPatch) -> None:
    data = bundle.dumps(long_records(3))
    monkeypatch.delattr("autotune.records.bundle.expanded")
    assert BundleReader(data).record(lambda _: True, Problem(7, 7, 7)) is None


def test_damaged_part_is_refused() -> None:
    originals = long_records(2)
    data = bytearray(bundle.dumps(originals))
    data[-20] ^= 1
    with pytest.raises(ValueError, match=r"not xz|cut short|checksum"):
        BundleReader(bytes(data)).record(lambda _: True, originals[0].problem)


def test_bundle_in_gzip_is_still_read() -> None:
    originals = long_records(2 * bundle.PART, 1)
    parts = lzma.decompress(bundle.dumps(originals)).partition(b"\n")
    header, _, body = parts
    lines = body.splitlines(keepends=True)
    texts = [b"".join(lines[: bundle.PART]), b"".join(lines[bundle.PART :])]
    members = [gzip.compress(text) for text in texts]
    fields = json.loads(header)
    for part, member in zip(fields["parts"], members, strict=True):
        part["bytes"] = len(member)
    old = b"".join([gzip.compress(checksum.sealed(fields) + b"\n"), *members])
    assert bundle.loads(old).records == tuple(originals)
    asked = originals[bundle.PART + 1]
    assert BundleReader(old).record(lambda _: True, asked.problem) == asked


def test_record_of_five_entries_takes_a_kilobyte() -> None:
    assert len(bundle.dumps(long_records(100))) <= 100 * 1024


def least_seconds(action: Callable[[], object]) -> float:
    """The shortest of ten times, so that a busy machine matters less."""
    seconds = []
    for _ in range(10):
        began = process_time()
        action()
        seconds.append(process_time() - began)
    return min(seconds)


def test_reading_takes_at_most_ten_times_as_long_as_its_json() -> None:
    """300 records."""
    data = bundle.dumps(long_records(300))
    lines = lzma.decompress(data).splitlines()
    limit = 10 * least_seconds(lambda: [json.loads(line) for line in lines])
    assert least_seconds(lambda: bundle.loads(data)) < limit


# Several bundles in a row


@pytest.fixture
def _small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "CHUNK", 100)


@pytest.mark.usefixtures("_small_chunks")
def test_large_content_survives_its_file() -> None:
    content = bundle.Bundle(tuple(long_records(250, 1)), (LOW, replace(LOW, device=find("t4"))))
    data = b"".join(bundle.written(content))
    assert len([*bundle.chunks(io.BytesIO(data))]) == 3
    assert bundle.loads(data) == content


def test_small_content_is_one_bundle_as_before() -> None:
    content = bundle.Bundle(tuple(long_records(3)), (LOW,))
    assert [*bundle.written(content)] == [bundle.dumps(content.records, content.ranges)]


def test_header_of_distinct_devices_is_read() -> None:
    """A bundle of the most records that are written together, each of a device of its own."""
    name = "NVIDIA " + "x" * 40
    devices = (replace(H100, name=f"{name} {number}") for number in range(bundle.CHUNK))
    (original, *_) = long_records(1, 1)
    header = BundleReader(bundle.dumps(replace(original, device=device) for device in devices))
    assert len(header.devices) == bundle.CHUNK


@pytest.mark.usefixtures("_small_chunks")
def test_memory_does_not_grow_with_the_number_of_records() -> None:
    """Beyond the file itself, which is read from a disk elsewhere."""
    few, many = long_records(200, 1), long_records(1000, 1)

    def peak(records: list[Record]) -> int:
        file = io.BytesIO()
        tracemalloc.start()
        for piece in bundle.written(bundle.Bundle(records)):
            file.write(piece)
        file.seek(0)
        assert sum(1 for _ in bundle.read(file)) == len(records)
        most = tracemalloc.get_traced_memory()[1] - len(file.getvalue())
        tracemalloc.stop()
        return most

    assert peak(many) < 1.5 * peak(few)


@pytest.mark.usefixtures("_small_chunks")
@pytest.mark.parametrize("cut", [1, 40, 3000])
def test_file_that_is_cut_short_is_refused(cut: int) -> None:
    data = b"".join(bundle.written(bundle.Bundle(long_records(250, 1))))
    with pytest.raises(ValueError, match=r"cut short|not JSON|not xz"):
        bundle.loads(data[:-cut])


def test_part_of_fewer_lines_than_stated_is_refused() -> None:
    originals = long_records(2)
    data = bundle.dumps(originals)
    header, start = read_header(data)
    stated = asdict(header)
    stated["records"], stated["problems"] = 3, [str(record.problem) for record in originals] + ["x"]
    stated["parts"][0]["lines"] = 3
    short = lzma.compress(checksum.sealed({"schema": 2, **stated}) + b"\n") + data[start:]
    message = "it has 2 lines, its header tells of 3 records"
    with pytest.raises(ValueError, match=message):
        bundle.loads(short)
    with pytest.raises(ValueError, match=message):
        BundleReader(short).record(is_h100, originals[0].problem)


def test_xz_that_takes_much_memory_is_refused() -> None:
    greedy = {
        "id": lzma.FILTER_LZMA2,
        "dict_size": 256 << 20,
        "mode": lzma.MODE_FAST,
        "nice_len": 32,
    }
    data = lzma.compress(b"{}", filters=[greedy | {"mf": lzma.MF_HC3, "depth": 1}])
    with pytest.raises(ValueError, match=r"it is not xz: Memory usage limit"):
        bundle.loads(data)


# Reading parts


def is_h100(device: Device) -> bool:
    return device == H100


def test_header_names_all_devices() -> None:
    t4 = find("t4")
    data = bundle.dumps([record(), record(device=t4)], [LOW, replace(LOW, device=find("l4"))])
    assert BundleReader(data).devices == (H100, t4, find("l4"))


def test_records_of_one_device_are_read() -> None:
    reader = BundleReader(bundle.dumps([record(device=find("t4")), record()]))
    assert list(reader.records(is_h100)) == [record()]


def test_single_record_is_read() -> None:
    wanted, *rest = long_records(3)
    reader = BundleReader(bundle.dumps([*rest, replace(wanted, device=find("t4")), wanted]))
    assert reader.record(is_h100, wanted.problem) == wanted
    assert reader.record(is_h100, Problem(1, 1, 1)) is None


def test_reading_a_single_record_decodes_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []
    loads = codec.loads

    def noted(text: bytes) -> TuningRecord:
        decoded.append(text)
        return loads(text)

    monkeypatch.setattr(codec, "loads", noted)
    wanted, *rest = long_records(3)
    reader = BundleReader(bundle.dumps([wanted, *rest]))
    for _ in range(2):
        reader.record(is_h100, wanted.problem)
    assert decoded == [codec.line(wanted)]


# Broken bundles


def packed(header: dict[str, Any], lines: list[dict[str, Any]], *, whole: bool = True) -> bytes:
    """A bundle with valid checksums of its lines, and if `whole` of its body."""
    body = b"".join(checksum.sealed(line) + b"\n" for line in lines)
    if whole:
        header = header | {"sha256": sha256(body).hexdigest()}
    return of_one_part(header, body)


def of_one_part(header: dict[str, Any], body: bytes) -> bytes:
    """A bundle of these lines in a part with its right checksum."""
    part, count = lzma.compress(body), body.count(b"\n")
    parts = [{"bytes": len(part), "lines": count, "sha256": sha256(body).hexdigest()}]
    return lzma.compress(checksum.sealed(header | {"parts": parts}) + b"\n") + part


def unpacked() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The header and the lines of a bundle of one record and one range."""
    data = bundle.dumps([record(entry(16, 900.0), baseline_us=800.0)], [LOW])
    header, *lines = map(json.loads, lzma.decompress(data).splitlines())
    return header, lines


def in_header(name: str, value: object) -> bytes:
    header, lines = unpacked()
    return packed(header | {name: value}, lines, whole=name != "sha256")


def in_line(number: int, *path: str | int, value: object) -> bytes:
    header, lines = unpacked()
    target: Any = lines[number]
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return packed(header, lines)


ENTRY = (0, "entries", 0)

WHOLE = bundle.dumps([record()])

BROKEN = {
    "empty": (b"", "it is not a bundle"),
    "truncated": (WHOLE[:-30], "cut short"),
    "only its start": (WHOLE[:40], "it is not JSON"),
    "damaged": (WHOLE[:200] + b"\0" * 9 + WHOLE[209:], "it is not xz"),
    "not gzip": (b"\x1f\x8bpacked otherwise", "it is not gzip"),
    "not text": (lzma.compress(b"\xff\xfe\x00"), "it is not JSON"),
    "not an object": (lzma.compress(b"[]"), r"bundle is \[\]; it must be an object"),
    "deep": (lzma.compress(b"[" * 100_000), "it nests too deeply"),
    "another schema": (in_header("schema", 3), "schema is 3, this version reads 2"),
    "no devices": (in_header("devices", None), "devices is None; it must be a list"),
    "malformed device": (in_header("devices", [{"sms": 1}]), "missing device fields"),
    "another count": (in_header("records", 2), "2 lines, its header tells of 2 records"),
    "a count as a word": (in_header("records", "one"), "records is 'one'; it must be a whole"),
    "other lines": (in_header("sha256", "0" * 64), "checksum is 000000000000, its content has"),
    "a record that is none": (packed(unpacked()[0], [{"a": 1}, {"a": 1}]), "line 2: schema is"),
    "no problem": (in_line(0, "problem", value=None), "line 2: .*problem"),
    "impossible problem": (in_line(0, "problem", "m", value=0), "line 2: problem: M is 0"),
    "malformed record device": (
        in_line(0, "device", "sms", value="many"),
        "device field sms is 'many'; it must be a whole number",
    ),
    "unknown evidence": (in_line(0, "evidence", value="hearsay"), "unknown evidence 'hearsay'"),
    "no date": (in_line(0, "provenance", "date", value=None), r"provenance\.date is None"),
    "no entries": (in_line(0, "entries", value=[]), "without entries"),
    "an entry of another type": (in_line(*ENTRY, value=7), r"entries\[0\] is 7; it must be an obj"),
    "malformed configuration": (in_line(*ENTRY, "config", value="a:="), r"entries\[0\]: malformed"),
    "two configurations": (in_line(*ENTRY, "params", value={"tile_width": 8}), "params of tiled"),
    "a fraction": (
        in_line(*ENTRY, "config", value="tiled:tile_width=16.5"),
        "tile_width of tiled:tile_width=16.5 must be a whole number or a word",
    ),
    "a value that is a list": (
        in_line(*ENTRY, "params", value={"tile_width": [16]}),
        "it must be a whole number or a text",
    ),
    "no limiter": (in_line(*ENTRY, "limiter", value=None), r"entries\[0\]\.limiter is None"),
    "time as a word": (
        in_line(*ENTRY, "measurement", "time_us", value="fast"),
        r"entries\[0\]\.measurement\.time_us is 'fast'; it must be a number",
    ),
    "time of zero": (in_line(*ENTRY, "measurement", "time_us", value=0), "time_us is 0; "),
    "time without end": (in_line(*ENTRY, "measurement", "time_us", value=10**400), "64 digits"),
    "no time": (in_line(*ENTRY, "measurement", value={}), r"measurement\.time_us is missing"),
    "registers as a fraction": (
        in_line(*ENTRY, "resources", "registers", value=32.5),
        r"entries\[0\]\.resources\.registers is 32\.5; it must be a whole number",
    ),
    "malformed baseline": (in_line(0, "baseline", value={}), r"baseline\.time_us is missing"),
    "a range with a gap": (in_line(1, "segments", 1, 0, value=70), "follows a segment that ends"),
    "no range": (in_line(1, "segments", value=None), "segments is None; it must be a list"),
}  # fmt: skip


@pytest.mark.parametrize(("data", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_bundle_is_refused_with_the_reason(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bundle.loads(data)


def test_changed_time_is_refused() -> None:
    data = bundle.dumps([record(entry(16, 900.5))])
    header, start = read_header(data)
    changed = lzma.compress(lzma.decompress(data[start:]).replace(b"900.5", b"100.5"))
    stated = asdict(header)
    stated["parts"][0]["bytes"] = len(changed)
    head = lzma.compress(checksum.sealed({"schema": 2, **stated}) + b"\n")
    with pytest.raises(ValueError, match=r"checksum is [0-9a-f]{12}, .*; it was changed"):
        bundle.loads(head + changed)


def test_checksum_of_a_line_refuses_a_changed_time() -> None:
    header, lines = unpacked()
    body = b"".join(checksum.sealed(line) + b"\n" for line in lines).replace(b"900.0", b"100.0")
    with pytest.raises(ValueError, match="it was changed"):
        bundle.loads(of_one_part(header | {"sha256": sha256(body).hexdigest()}, body))


def test_header_without_a_checksum_is_refused() -> None:
    header, lines = unpacked()
    del header[checksum.CHECKSUM]
    body = b"".join(checksum.sealed(line) + b"\n" for line in lines)
    with pytest.raises(ValueError, match="no checksum"):
        bundle.loads(lzma.compress(json.dumps(header).encode() + b"\n" + body))
