"""Digests: what look-ups learn from records, without decoding and describing them each time."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.sample_records import H100, SQUARE, record

from autotune import settings
from autotune.device import Device
from autotune.lookup import digests
from autotune.lookup.digest import RecordDigest, dumps, loads, samples
from autotune.model.model_error import Sample, SampleGroup, groups_of
from autotune.problem import Problem
from autotune.records import Record, Records, Store, codec, shipped
from autotune.records.bundle import BundleReader
from autotune.runners.base import Evidence
from autotune.runners.objective import HOT, TIMES, Objective

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
        if (time := entry.measurement.estimate(objective)) is not None
    ]
    learnt = groups_of(timed, tuned.problem, tuned.device)
    return {group.family: group for group in learnt}


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_shipped_bundle_has_a_digest_of_today(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else run `python scripts/digests.py`."""

    def never(*_: object) -> Iterator[Record]:
        raise AssertionError(f"{digests.beside(path).name} is not of {path.name}")

    monkeypatch.setattr(BundleReader, "records", never)
    content = BundleReader(path.read_bytes())
    assert len(digests.of_bundle(path, content)) == len(content)


@pytest.mark.parametrize("objective", TIMES)
def test_shipped_digest_is_what_its_records_tell(
    objective: Objective, reader: BundleReader, tuned: list[Record]
) -> None:
    """Else run `python scripts/digests.py`: the cost model has changed."""
    listed = digests.of_bundle(BUNDLES[-1], reader)
    for digest, made in zip(listed, tuned, strict=False):
        expected = described(made, objective)
        groups = {group.family: group for group in samples([digest], objective)}
        assert groups.keys() == expected.keys()
        for family, group in groups.items():
            assert np.allclose(group.features, expected[family].features, rtol=1e-5)
            assert np.allclose(group.logs, expected[family].logs, rtol=2**-11, atol=1e-5)


def test_digest_has_the_configurations_of_its_records(tuned: list[Record]) -> None:
    _, listed = loads(dumps(map(RecordDigest.of, tuned), "key"))
    for digest, made in zip(listed, tuned, strict=True):
        check(digest, made)


def test_samples_of_records_are_those_of_each(tuned: list[Record]) -> None:
    made = [*map(RecordDigest.of, tuned)]
    for group in samples(made, HOT):
        for place, digest in enumerate(made):
            alone = {each.family: each for each in samples([digest], HOT)}
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
    with pytest.raises(ValueError, match="it is no digest"):
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
    digests._listed.cache_clear()
    return [digest for _, digest in digests.own(H100, records).nearest(SQUARE, H100, 128)]


def test_digest_of_a_store_is_kept(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    first = own(records)
    monkeypatch.setattr(Store, "load", lambda *_: None)
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


def test_only_near_records_are_read(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(2, 40):
        records.store.save(record(problem=Problem(64 * number, 64, 64)))
    read: list[Problem] = []
    load = Store.load

    def counted(store: Store, device: Device, problem: Problem, *rest: Evidence) -> Record | None:
        read.append(problem)
        return load(store, device, problem, *rest)

    monkeypatch.setattr(Store, "load", counted)
    near = digests.own(H100, records).nearest(Problem(1280, 64, 64), H100, 3)
    assert {digest.problem.m for _, digest in near} == {1216, 1280, 1344}
    assert sorted(problem.m for problem in read) == [1216, 1280, 1344]


def test_digests_made_last_are_kept(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "KEPT", 4)
    for number in range(1, 9):
        records.store.save(record(problem=Problem(2**number, 64, 64)))
    for size in (2, 256):
        digests.own(H100, records).nearest(Problem(size, 64, 64), H100, 3)
    (path,) = records.store.root.glob("choices/*/*.digest")
    _, kept = loads(path.read_bytes())
    assert {digest.problem.m for digest in kept} > {256, 128, 64}
    assert len(kept) == 4


@pytest.mark.parametrize("name", ["none.json", "0x64x64-f32-nn.json", "64x64-f32-nn.json"])
def test_file_that_is_no_problem_is_no_neighbour(name: str, records: Records) -> None:
    records.store.path(H100, SQUARE).with_name(name).write_text("{}")
    assert [digest.problem for digest in own(records)] == [SQUARE]


def test_broken_record_is_no_neighbour(records: Records) -> None:
    records.store.path(H100, Problem(64, 64, 64)).write_text("{}")
    with pytest.warns(UserWarning, match="passed over"):
        assert [digest.problem for digest in own(records)] == [SQUARE]


def test_cache_that_cannot_be_written_keeps_nothing(records: Records) -> None:
    (records.store.root / digests.FOLDER).write_text("no folder")
    assert len(own(records)) == 1


def test_new_record_makes_a_new_digest(records: Records) -> None:
    own(records)
    records.store.save(record(problem=Problem(64, 64, 64)))
    assert len(own(records)) == 2


def test_another_version_makes_a_new_digest(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    own(records)
    monkeypatch.setattr(digests, "__version__", "99")
    monkeypatch.setattr(Store, "load", lambda *_: None)
    assert own(records) == []
