"""Digests: what look-ups learn from records, without decoding and describing them each time."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.logged import logs
from support.sample_records import H100, SQUARE, record

from autotune import settings
from autotune.lookup import digest, neighbours
from autotune.lookup.digest import RecordDigest, dumps, loads, samples
from autotune.measure.objective import HOT, TIMES, Objective
from autotune.model.model_error import Sample, SampleGroup, groups_of
from autotune.problem import Problem
from autotune.records import Record, Records, Store, TuningRecord, codec, shipped
from autotune.records.bundle import BundleReader

BUNDLES = shipped.paths(settings.shipped_dir())


@pytest.fixture(scope="module")
def reader() -> BundleReader:
    return BundleReader(BUNDLES[-1].read_bytes())


@pytest.fixture(scope="module")
def tuned(reader: BundleReader) -> list[Record]:
    """Three shipped records."""
    return [record for _, record in zip(range(3), reader.records(), strict=False)]


def described(tuned: Record, objective: Objective) -> dict[str, SampleGroup]:
    """The record's entries of each family, described without a digest."""
    timed = [
        Sample(entry.config, entry.resources, time.time_us)
        for entry in tuned.entries
        if (time := objective.estimate(entry.measurement)) is not None
    ]
    learnt = groups_of(timed, tuned.problem, tuned.device)
    return {group.family: group for group in learnt}


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_shipped_bundle_has_a_digest_of_today(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else run `python scripts/fit/derived.py digests`."""

    def never(*_: object) -> Iterator[Record]:
        raise AssertionError(f"{digest.beside(path).name} is not of {path.name}")

    monkeypatch.setattr(BundleReader, "records", never)
    content = BundleReader(path.read_bytes())
    assert len(digest.of_bundle(path, content)) == len(content)


@pytest.mark.parametrize("objective", TIMES)
def test_shipped_digest_is_what_its_records_tell(
    objective: Objective, reader: BundleReader, tuned: list[Record]
) -> None:
    """Else run `python scripts/fit/derived.py digests`: the cost model has changed."""
    listed = digest.of_bundle(BUNDLES[-1], reader)
    for kept, made in zip(listed, tuned, strict=False):
        expected = described(made, objective)
        groups = {group.family: group for group in samples([kept], objective)}
        assert groups.keys() == expected.keys()
        for family, group in groups.items():
            assert np.allclose(group.features, expected[family].features, rtol=1e-5)
            assert np.allclose(group.logs, expected[family].logs, rtol=2**-11, atol=1e-5)


def test_digest_has_the_configurations_of_its_records(tuned: list[Record]) -> None:
    _, listed = loads(dumps(map(RecordDigest.of, tuned), "key"))
    for kept, made in zip(listed, tuned, strict=True):
        check(kept, made)


def test_samples_of_records_are_those_of_each(tuned: list[Record]) -> None:
    made = [*map(RecordDigest.of, tuned)]
    for group in samples(made, HOT):
        for place, kept in enumerate(made):
            alone = {each.family: each for each in samples([kept], HOT)}
            own = group.places == place
            assert own.any() == (group.family in alone)
            if own.any():
                expected = alone[group.family]
                assert np.array_equal(group.features[own], expected.features)
                assert np.array_equal(group.params.numbers[own], expected.params.numbers)
                pairs = sorted(group.params.pairs)
                assert np.array_equal(group.params.has(pairs)[own], expected.params.has(pairs))


def check(digest: RecordDigest, made: Record) -> None:
    """Checks that a digest tells what its record does."""
    assert digest.problem == made.problem
    theirs, kept = made.baseline, digest.baseline
    assert theirs is not None
    assert kept is not None
    assert (kept.time_us, kept.cold_us) == (theirs.time_us, theirs.cold_us)
    assert kept.relative_error == theirs.relative_error
    assert {config for config, _ in digest.entries()} == {entry.config for entry in made.entries}
    assert dict(digest.entries()) == {entry.config: entry.resources for entry in made.entries}


def test_file_that_is_no_digest_is_refused() -> None:
    with pytest.raises(ValueError, match="it is not gzip"):
        loads(b"none")
    with pytest.raises(ValueError, match="it is not a digest"):
        loads(gzip.compress(b"none"))


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Records:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "none"))
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    store = Store(tmp_path / "cache")
    store.save(record())
    return Records(store)


def own(records: Records) -> list[RecordDigest]:
    """The digests of the nearest records, as a new process finds them."""
    digest._of_folder.cache_clear()
    return [digest for _, digest in neighbours.own(H100, records).nearest(SQUARE, H100, 128)]


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


@pytest.mark.parametrize("way", ["replaced", "edited in place"])
def test_record_with_its_times_restored_is_read_again(way: str, records: Records) -> None:
    """As `rsync -a` and tar do."""
    own(records)
    path = records.store.path(H100, SQUARE)
    before = path.stat()
    content = codec.dumps(record(baseline_us=5.0))
    if way == "replaced":
        path.with_suffix(".new").write_bytes(content)
        path.with_suffix(".new").replace(path)
    else:
        path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    (digest,) = own(records)
    assert digest.baseline is not None
    assert digest.baseline.time_us == 5.0


def test_new_record_alone_is_read(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    own(records)
    records.store.save(record(problem=Problem(64, 64, 64)))
    read: list[bytes] = []
    decoded = codec.loads

    def counted(text: bytes) -> TuningRecord:
        read.append(text)
        return decoded(text)

    monkeypatch.setattr(codec, "loads", counted)
    assert len(own(records)) == 2
    assert len(read) == 1


@pytest.mark.parametrize("name", ["none.json", "0x64x64-f32-nn.json", "64x64-f32-nn.json"])
def test_file_that_is_no_problem_is_no_neighbour(name: str, records: Records) -> None:
    records.store.path(H100, SQUARE).with_name(name).write_text("{}")
    assert [digest.problem for digest in own(records)] == [SQUARE]


def test_broken_record_is_no_neighbour(records: Records) -> None:
    records.store.path(H100, Problem(64, 64, 64)).write_text("{}")
    with logs("skipped"):
        assert [digest.problem for digest in own(records)] == [SQUARE]


def test_cache_that_cannot_be_written_keeps_nothing(records: Records) -> None:
    (records.store.root / digest.FOLDER).write_text("no folder")
    assert len(own(records)) == 1


def test_new_record_makes_a_new_digest(records: Records) -> None:
    own(records)
    records.store.save(record(problem=Problem(64, 64, 64)))
    assert len(own(records)) == 2


def test_another_format_makes_a_new_digest(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(records)
    monkeypatch.setattr(digest, "FORMAT", (99, "0.3.0"))
    monkeypatch.setattr(Store, "records", lambda *_: [])
    assert own(records) == []
