"""Digests: what look-ups learn from records, without decoding and describing them each time."""

from __future__ import annotations

import lzma
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.sample_records import H100, SQUARE, record

from autotune import settings
from autotune.candidates.model_error import Sample, SampleGroup, groups_of
from autotune.lookup import digests
from autotune.lookup.digest import RecordDigest, samples
from autotune.lookup.digest_file import dumps, loads
from autotune.problem import Problem
from autotune.records import Record, Records, Store, codec, shipped
from autotune.records.bundle import BundleReader
from autotune.runners.objective import TIMES, Objective

BUNDLES = shipped.paths(settings.shipped_dir())


@pytest.fixture(scope="module")
def reader() -> BundleReader:
    return BundleReader(BUNDLES[-1].read_bytes())


@pytest.fixture(scope="module")
def tuned(reader: BundleReader) -> list[Record]:
    """Three shipped records."""
    return [record for _, record in zip(range(3), reader.records(), strict=False)]


def described(records: list[Record], objective: Objective) -> dict[str, SampleGroup]:
    """The records' entries of each family, described without a digest."""
    timed = [
        Sample(entry.config, entry.resources, time.time_us, record.problem, record.device)
        for record in records
        for entry in record.entries
        if (time := entry.measurement.estimate(objective)) is not None
    ]
    return {group.family: group for group in groups_of(timed)}


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_shipped_bundle_has_a_digest_of_today(path: Path) -> None:
    """Else run `python scripts/digests.py`."""

    def never() -> Iterator[Record]:
        raise AssertionError(f"{digests.beside(path).name} is not of {path.name}")

    content = BundleReader(path.read_bytes())
    listed = digests.of_bundle(path, content.content, never)
    assert len(listed) == content._header.records


@pytest.mark.parametrize("objective", TIMES)
def test_shipped_digest_is_what_its_records_tell(
    objective: Objective, reader: BundleReader, tuned: list[Record]
) -> None:
    """Else run `python scripts/digests.py`: the cost model has changed."""
    listed = digests.of_bundle(BUNDLES[-1], reader.content, reader.records)
    for digest, made in zip(listed, tuned, strict=False):
        expected = described([made], objective)
        groups = {group.family: group for group in samples([digest], objective)}
        assert groups.keys() == expected.keys()
        for family, group in groups.items():
            assert np.allclose(group.features, expected[family].features, rtol=1e-5)
            assert np.allclose(group.logs, expected[family].logs, rtol=2**-11, atol=1e-5)


def test_digest_has_the_configurations_of_its_records(tuned: list[Record]) -> None:
    _, listed = loads(dumps(tuned, "key"))
    for digest, made in zip(listed, tuned, strict=True):
        assert digest.problem == made.problem
        theirs, kept = made.baseline, digest.baseline
        assert theirs is not None
        assert kept is not None
        assert (kept.time_us, kept.cold_us) == (theirs.time_us, theirs.cold_us)
        assert kept.relative_error == theirs.relative_error
        assert {config for config, _ in digest.entries()} == {
            entry.config for entry in made.entries
        }
        assert dict(digest.entries()) == {entry.config: entry.resources for entry in made.entries}


def test_file_that_is_no_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="it is not gzip"):
        loads(b"none")
    with pytest.raises(ValueError, match="it is no digest"):
        loads(lzma.compress(b"none"))


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    store = Store(tmp_path / "cache")
    store.save(record())
    return Records(store)


def own(records: Records) -> tuple[RecordDigest, ...]:
    """The digests, as a new process finds them."""
    digests._kept_records.cache_clear()
    return digests.own(H100, records)


def test_digest_of_a_store_is_kept(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own(records)
    monkeypatch.setattr(Store, "records", lambda *_: [])
    assert [digest.problem for digest in own(records)] == [digest.problem for digest in first]
    assert len(first) == 1


@pytest.mark.parametrize("damage", [b"", b"x" * 40])
def test_damaged_digest_is_made_again(damage: bytes, records: Records) -> None:
    own(records)
    (path,) = records.store.root.glob("choices/*/*.digest")
    path.write_bytes(damage)
    assert len(own(records)) == 1


def test_record_edited_in_place_makes_a_new_digest(records: Records) -> None:
    own(records)
    path = records.store.path(H100, SQUARE)
    before = path.stat()
    path.write_bytes(codec.dumps(record(baseline_us=5.0)))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (digest,) = own(records)
    assert digest.baseline is not None
    assert digest.baseline.time_us == 5.0


def test_new_record_among_many_makes_one_digest_anew(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digests, "PART", 8)
    monkeypatch.setattr(digests, "PARTS", 4)
    problems = [Problem(64 * number, 64, 64) for number in range(1, 33)]
    for problem in problems[:-1]:
        records.store.save(record(problem=problem))
    assert {digest.problem for digest in own(records)} == {SQUARE, *problems[:-1]}
    records.store.save(record(problem=problems[-1]))
    before = {path: path.stat().st_ino for path in records.store.root.glob("choices/*/*.digest")}
    assert {digest.problem for digest in own(records)} == {SQUARE, *problems}
    after = {path: path.stat().st_ino for path in before}
    assert len(before) == 4
    assert sum(after[path] != before[path] for path in before) == 1


def test_new_record_makes_a_new_digest(records: Records) -> None:
    own(records)
    records.store.save(record(problem=Problem(64, 64, 64)))
    assert len(own(records)) == 2
