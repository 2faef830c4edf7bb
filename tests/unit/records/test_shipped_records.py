"""The shipped records, and which records serve which device."""

from __future__ import annotations

import json
import lzma
import os
import re
import time
from collections.abc import Iterable
from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from timeit import timeit

import pytest
from support.fake_runner import tiled
from support.logged import logs, warnings_logged
from support.sample_records import H100, SQUARE, entry, record

from autotune.api import lookups
from autotune.device import Device, find, same_architecture, same_model
from autotune.errors import NotFoundError
from autotune.files import checksum, limits, read, reading
from autotune.lookup.lookup import lookup
from autotune.measure.objective import HOT
from autotune.measure.without_gpu import PredictedRunner
from autotune.problem import Problem
from autotune.records import FamilyRecord, Record, Records, Store, bundle, codec, shipped
from autotune.records.bundle import BundleReader
from autotune.records.ranges import Range, Segment
from autotune.records.shipped import _file as bundle_file
from autotune.tuning.tunable import GemmTunable

OTHER_NAME = replace(H100, name="NVIDIA H100 SXM5 80GB", memory_bytes=84 * 10**9)

H200, PCIE = find("h200"), find("h100 pcie")

SMALL = Problem(64, 64, 64)

FILE = "some.jsonl.xz"


@pytest.fixture
def shipped_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the shipped records, empty."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(folder))
    return folder


@pytest.fixture
def library(tmp_path: Path, shipped_folder: Path) -> Records:
    del shipped_folder
    return Records(Store(tmp_path / "cache"))


def ship(folder: Path, records: Iterable[Record], ranges: Iterable[Range] = ()) -> None:
    (folder / FILE).write_bytes(bundle.dumps(records, ranges))


def tuned(width: int, time_us: float, problem: Problem = SQUARE, device: Device = H100) -> Record:
    return record(
        replace(entry(width, time_us), config=tiled(width)), problem=problem, device=device
    )


# Devices


def test_card_with_another_name_is_the_same_model() -> None:
    assert same_model(H100, OTHER_NAME)


def test_slightly_different_clocks_are_the_same_model() -> None:
    assert same_model(H100, replace(H100, sm_clock=1_965_000_000, memory_clock=0))


@pytest.mark.parametrize("device", [H200, PCIE, find("a100")], ids=lambda device: device.name)
def test_other_models_differ(device: Device) -> None:
    assert not same_model(H100, device)


def test_models_of_one_architecture_run_the_same_programs() -> None:
    assert (same_architecture(H100, H200), same_architecture(H100, find("a100"))) == (True, False)


# Shipped records


def test_shipped_records_are_of_the_model(shipped_folder: Path) -> None:
    h100, h200 = tuned(16, 9.0), tuned(16, 8.0, device=H200)
    ship(shipped_folder, [h100, h200])
    assert (shipped.records(H100), shipped.records(H200)) == ((h100,), (h200,))


def test_empty_folder_ships_no_records(shipped_folder: Path) -> None:
    del shipped_folder
    assert shipped.records(H100) == ()


def test_missing_folder_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "nowhere"))
    assert shipped.records(H100) == ()


def test_broken_header_is_skipped_with_a_warning(shipped_folder: Path) -> None:
    (shipped_folder / FILE).write_bytes(b"broken")
    with logs(f"{FILE}: skipped: it is not a bundle"):
        assert shipped.records(H100) == ()


def test_tampered_file_is_skipped_with_a_warning(shipped_folder: Path) -> None:
    ship(shipped_folder, [tuned(16, 9.0)])
    path = shipped_folder / FILE
    path.write_bytes(path.read_bytes()[:-20])
    with logs(f"{FILE}: skipped"):
        assert shipped.records(H100) == ()


def test_malformed_record_is_skipped_with_a_warning(
    shipped_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = json.dumps(codec.encode(tuned(16, 9.0)) | {"schema": 9}).encode()
    with monkeypatch.context() as patch:
        patch.setattr(codec, "line", lambda _: line)
        ship(shipped_folder, [tuned(16, 9.0)])
    with logs(f"{FILE}: skipped: line 2: schema is 9"):
        assert shipped.record(H100, SQUARE) is None


def test_tampered_file_without_the_device_stays_closed(shipped_folder: Path) -> None:
    ship(shipped_folder, [tuned(16, 9.0)])
    path = shipped_folder / FILE
    path.write_bytes(path.read_bytes()[:-20])
    assert shipped.records(H200) == ()


def test_file_is_read_once(shipped_folder: Path, reads: list[Path]) -> None:
    ship(shipped_folder, [tuned(16, 9.0)])
    assert shipped.records(H100) == shipped.records(H100)
    assert shipped.record(H100, SQUARE) == tuned(16, 9.0)
    assert reads == [shipped_folder / FILE]


def test_replaced_file_of_the_same_time_is_read_again(shipped_folder: Path) -> None:
    for made in (tuned(16, 9.0), tuned(16, 8.0)):
        ship(shipped_folder, [made])
        os.utime(shipped_folder / FILE, ns=(10**18, 10**18))
        assert shipped.records(H100) == (made,)


def test_record_in_an_order_of_summation_is_not_looked_up(shipped_folder: Path) -> None:
    plain = tuned(16, 9.0)
    values = {field.name: getattr(plain, field.name) for field in fields(plain)}
    ship(shipped_folder, [plain, FamilyRecord(**values, family="auto", order="simt")])
    assert shipped.records(H100) == (plain,)
    assert shipped.record(H100, SQUARE) == plain


# Files that are too large for look-ups


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that are read."""
    paths: list[Path] = []

    def noted(path: Path, limit: int) -> bytes:
        paths.append(path)
        return read(path, limit)

    monkeypatch.setattr("autotune.records.shipped.files.read", noted)
    return paths


def padded(lines: int, blanks: int, parts: int) -> bytes:
    """A bundle of many parts, each of a record of `SMALL`, said to be of `SQUARE`, and blanks."""
    text = codec.line(tuned(16, 9.0, SMALL)) + b"\n" + (b" " * blanks + b"\n") * (lines - 1)
    part = lzma.compress(text, preset=0)
    header = {
        "schema": 2,
        "devices": [H100.to_json()],
        "records": lines * parts,
        "ranges": 0,
        "sha256": sha256(text * parts).hexdigest(),
        "problems": [str(SQUARE), *["x"] * (lines - 1)] * parts,
        "parts": [{"bytes": len(part), "lines": lines, "sha256": sha256(text).hexdigest()}] * parts,
    }
    return lzma.compress(checksum.sealed(header) + b"\n") + part * parts


TOO_LARGE = {
    "lines of 8 MiB": (2, 1 << 23, 4, r"xz of more than 2097152 bytes"),
    "many parts": (
        3,
        1 << 20,
        40,
        r"more than 67108864 bytes; look-ups .* `autotune cache import`",
    ),
}


@pytest.mark.parametrize("form", TOO_LARGE)
def test_bomb_is_skipped_with_one_warning(
    form: str, shipped_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, blanks, parts, why = TOO_LARGE[form]
    (shipped_folder / FILE).write_bytes(padded(lines, blanks, parts))
    sizes: list[int] = []

    def noted(data: bytes, limit: int) -> bytes:
        sizes.append(limit)
        return reading.expanded(data, limit)

    monkeypatch.setattr("autotune.records.bundle.expanded", noted)
    with warnings_logged() as texts:
        assert shipped.record(H100, SQUARE) is None
        assert sum(sizes) < 128 << 20
        expansions = len(sizes)
        assert shipped.record(H100, SQUARE) is None
    assert len(sizes) == expansions
    (text,) = texts
    assert re.search(f"{FILE}: skipped: .*{why}", text)


def test_file_of_too_many_records_names_the_import(
    shipped_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship(shipped_folder, [tuned(16, 9.0), tuned(16, 8.0, SMALL)])
    monkeypatch.setattr(limits, "BUNDLE_RECORDS", 1)
    command = r"it has 2 records, over 1; .* `autotune cache import` takes all of it"
    with logs(rf"{FILE}: skipped: {command}"):
        assert shipped.records(H100) == ()


def test_several_bundles_in_a_file_are_looked_up(shipped_folder: Path) -> None:
    pair = tuned(16, 9.0), tuned(16, 8.0, SMALL)
    (shipped_folder / FILE).write_bytes(b"".join(bundle.dumps([each]) for each in pair))
    assert {*shipped.records(H100)} == {*pair}
    assert shipped.record(H100, SMALL) == pair[1]


def test_three_hundred_records_are_read_quickly(shipped_folder: Path) -> None:
    many = [
        record(*(replace(entry(16, 9.0 + n), config=tiled(2 + n)) for n in range(10)),
               problem=Problem(64, 64, 1 + size))
        for size in range(300)
    ]  # fmt: skip
    ship(shipped_folder, many)
    # Without the collector, which would walk through all that the tests before have left.
    seconds = timeit(lambda: shipped.records(H100), number=1, timer=time.thread_time)
    assert seconds < 0.5  # 0.05 s on an idle machine
    assert len(shipped.records(H100)) == 300


# Precedence of the user's records


def test_shipped_record_answers_a_lookup(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [tuned(16, 9.0)])
    answer = lookup(SQUARE, H100, library.store)
    assert answer is not None
    assert (answer.how, answer.time_us) == ("exact", 9.0)


def test_users_record_precedes_the_shipped_one(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [tuned(16, 1.0)])
    own = library.store.save(tuned(16, 9.0))
    assert (library.load(H100, SQUARE), library.records(H100)) == (own, [own])


def test_shipped_record_precedes_a_prediction(library: Records, shipped_folder: Path) -> None:
    measured = tuned(16, 9.0)
    ship(shipped_folder, [measured])
    library.store.save(replace(tuned(16, 1.0), evidence="predicted"))
    assert (library.load(H100, SQUARE), library.records(H100)) == (measured, [measured])


def test_shipped_measurement_precedes_a_replayed_record(
    library: Records, shipped_folder: Path
) -> None:
    measured = tuned(16, 900.0)
    raced = replace(measured, provenance=replace(measured.provenance, quick=True))
    library.store.save(replace(tuned(32, 800.0), evidence="replayed"))
    for shipped_one in (measured, raced):
        ship(shipped_folder, [shipped_one])
        bundle_file.cache_clear()
        assert library.load(H100, SQUARE) == shipped_one
        assert library.records(H100) == [shipped_one]
        answer = lookup(SQUARE, H100, library.store)
        assert answer is not None
        assert (answer.evidence, answer.record) == ("measured", shipped_one)


def test_replayed_record_precedes_a_prediction(library: Records, shipped_folder: Path) -> None:
    replayed = replace(tuned(16, 900.0), evidence="replayed")
    ship(shipped_folder, [replayed])
    library.store.save(replace(tuned(32, 800.0), evidence="predicted"))
    assert (library.load(H100, SQUARE), library.records(H100)) == (replayed, [replayed])


def test_each_problem_has_one_record(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [tuned(16, 1.0), tuned(16, 2.0, SMALL)])
    library.store.save(tuned(16, 9.0))
    assert [record.problem for record in library.records(H100)] == [SMALL, SQUARE]


def test_records_under_another_device_name_count(library: Records) -> None:
    own = library.store.save(tuned(16, 9.0, device=OTHER_NAME))
    assert (library.load(H100, SQUARE), library.records(H100)) == (own, [own])


def test_broken_record_does_not_hide_its_device(library: Records) -> None:
    saved = library.store.save(tuned(16, 9.0, device=OTHER_NAME))
    folder = library.store.path(OTHER_NAME, SQUARE).parent
    (folder / "0.json").write_text("{")
    with logs("skipped"):
        assert library.records(H100) == [saved]


def test_shipped_ranges_answer_lookups(library: Records, shipped_folder: Path) -> None:
    short = replace(SQUARE, k=64)  # one kernel is accurate enough for all rows
    whole = Range(H100, short, "m", (Segment(1, 4096, 64),))
    point = tuned(16, 9.0, replace(short, m=64))
    ship(shipped_folder, [point], [whole])
    answer = lookup(replace(short, m=100), OTHER_NAME, library.store)
    assert answer is not None
    assert (answer.how, answer.record) == ("range", point)


# Users of the shipped records


def test_search_starts_from_shipped_records(library: Records, shipped_folder: Path) -> None:
    candidates = GemmTunable(SMALL, "tiled").candidates(
        PredictedRunner(SMALL, H100), (), ranked=None
    )
    winner = candidates.ranked[-1]  # the model would try it last
    ship(
        shipped_folder,
        [record(replace(entry(16, 1.0), config=winner), problem=Problem(64, 64, 128))],
    )
    assert winner in GemmTunable(SMALL, "tiled").guesses(candidates, H100, library.store, HOT)[:4]


def test_best_finds_shipped_records(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(shipped_folder.parent / "cache"))
    measured = tuned(16, 9.0)
    ship(shipped_folder, [measured])
    assert lookups.best(4096, 4096, 4096, device="h100") == measured


def test_untuned_problem_is_chosen_but_has_no_best(
    shipped_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(shipped_folder.parent / "cache"))
    ship(shipped_folder, [tuned(16, 9.0)])
    chosen = lookups.choose(4096, 4096, 4000, compute="f32", device="h100")
    assert chosen.expected_loss
    with pytest.raises(NotFoundError):
        lookups.best(4096, 4096, 4000, device="h100")


def test_packages_own_files_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")
    from autotune import settings

    folder = settings.shipped_dir()
    assert folder.parent.name == "data"
    assert shipped.paths(folder)
    for path in shipped.paths(folder):
        reader = BundleReader(path.read_bytes())
        assert all(path.stem.startswith(record.device.slug) for record in reader.records())
        assert all(path.stem.startswith(device.slug) for device in reader.devices)


# Records of a site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Two folders of a site's records, the first before the second."""
    folders = tmp_path / "team", tmp_path / "company"
    for folder in folders:
        folder.mkdir()
    monkeypatch.setenv("AUTOTUNE_SITE_DIR", os.pathsep.join(map(str, folders)))
    return folders


def test_records_of_a_site_stand_between_own_and_shipped(
    library: Records, shipped_folder: Path, site: tuple[Path, Path]
) -> None:
    for place, folder in enumerate((shipped_folder, site[1], site[0])):
        ship(folder, [tuned(16, 9.0 - place)])
        assert library.load(H100, SQUARE) == tuned(16, 9.0 - place)
        assert library.records(H100) == [tuned(16, 9.0 - place)]
    own = library.store.save(tuned(16, 20.0))
    assert library.load(H100, SQUARE) == own


@pytest.mark.parametrize("measured_last", [True, False])
def test_measurement_precedes_a_replayed_record_of_a_site(
    library: Records, shipped_folder: Path, site: tuple[Path, Path], measured_last: bool
) -> None:
    measured, replayed = tuned(16, 900.0), replace(tuned(32, 800.0), evidence="replayed")
    ship(site[0], [replayed])
    ship(shipped_folder, [replayed, measured] if measured_last else [measured, replayed])
    assert (library.load(H100, SQUARE), library.records(H100)) == (measured, [measured])


def test_missing_folder_of_a_site_is_named(
    library: Records, shipped_folder: Path, site: tuple[Path, Path]
) -> None:
    ship(shipped_folder, [tuned(16, 9.0)])
    site[0].rmdir()
    with logs(f"AUTOTUNE_SITE_DIR: {site[0]} is not a folder"):
        assert library.load(H100, SQUARE) == tuned(16, 9.0)


def test_bundle_that_cannot_be_read_is_skipped_with_the_reason(shipped_folder: Path) -> None:
    (shipped_folder / FILE).touch()
    os.truncate(shipped_folder / FILE, limits.BUNDLE + 1)
    with logs(rf"{FILE}: skipped: cannot be read: "):
        assert shipped.records(H100) == ()
