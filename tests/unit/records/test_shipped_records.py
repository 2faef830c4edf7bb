"""The shipped records, and which records serve which device."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record

from autotune.api import lookups
from autotune.device import Device, find, same_architecture, same_model
from autotune.errors import NotFoundError
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.records import Record, Records, Store, bundle, shipped
from autotune.records.ranges import Range, Segment
from autotune.runners.predicted import PredictedRunner
from autotune.tuning.gemm import GemmTunable

OTHER_NAME = replace(H100, name="NVIDIA H100 SXM5 80GB", memory_bytes=84 * 10**9)
H200, PCIE = find("h200"), find("h100 pcie")
SMALL = Problem(64, 64, 64)


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
    (folder / "some.json").write_bytes(bundle.dumps(records, ranges))


def known(width: int, time_us: float, problem: Problem = SQUARE, device: Device = H100) -> Record:
    return record(
        replace(entry(width, time_us), config=tiled(width)), problem=problem, device=device
    )


# Devices


def test_a_card_under_another_name_is_of_the_same_model() -> None:
    assert same_model(H100, OTHER_NAME)


def test_clocks_that_differ_a_little_are_of_one_model() -> None:
    assert same_model(H100, replace(H100, sm_clock=1_965_000_000, memory_clock=0))


@pytest.mark.parametrize("other", [H200, PCIE, find("a100")], ids=lambda one: one.name)
def test_another_model_is_another(other: Device) -> None:
    assert not same_model(H100, other)


def test_models_of_one_architecture_are_related() -> None:
    assert (same_architecture(H100, H200), same_architecture(H100, find("a100"))) == (True, False)


# Shipped records


def test_shipped_records_are_those_of_the_model(shipped_folder: Path) -> None:
    ours, theirs = known(16, 9.0), known(16, 8.0, device=H200)
    ship(shipped_folder, [ours, theirs])
    assert (shipped.records(H100), shipped.records(H200)) == ((ours,), (theirs,))


def test_without_shipped_records_there_are_none(shipped_folder: Path) -> None:
    del shipped_folder
    assert shipped.records(H100) == ()


def test_a_missing_folder_is_no_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "nowhere"))
    assert shipped.records(H100) == ()


def test_a_tampered_file_is_named_and_passed_over(shipped_folder: Path) -> None:
    ship(shipped_folder, [known(16, 9.0)])
    path = shipped_folder / "some.json"
    path.write_text(path.read_text().replace("16", "32"))
    with pytest.warns(UserWarning, match="some.json: passed over"):
        assert shipped.records(H100) == ()


def test_a_file_is_read_once(shipped_folder: Path) -> None:
    ship(shipped_folder, [known(16, 9.0)])
    first = shipped.records(H100)
    (shipped_folder / "some.json").write_text("broken since")
    assert shipped.records(H100) == first


def test_three_hundred_records_are_read_quickly(shipped_folder: Path) -> None:
    many = [
        record(*(replace(entry(16, 9.0 + n), config=tiled(2 + n)) for n in range(10)),
               problem=Problem(64, 64, 1 + size))
        for size in range(300)
    ]  # fmt: skip
    ship(shipped_folder, many)
    began = time.process_time()
    assert len(shipped.records(H100)) == 300
    assert time.process_time() - began < 0.5  # a tenth of that on an idle machine


# The user's records before them


def test_a_shipped_record_is_answered(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [known(16, 9.0)])
    answer = lookup(SQUARE, H100, library.store)
    assert answer is not None
    assert (answer.how, answer.time_us) == ("exact", 9.0)


def test_the_users_record_goes_first(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [known(16, 1.0)])
    own = library.store.save(known(16, 9.0))
    assert (library.load(H100, SQUARE), library.records(H100)) == (own, [own])


def test_a_prediction_of_the_users_does_not(library: Records, shipped_folder: Path) -> None:
    there = known(16, 9.0)
    ship(shipped_folder, [there])
    library.store.save(replace(known(16, 1.0), evidence="predicted"))
    assert (library.load(H100, SQUARE), library.records(H100)) == (there, [there])


def test_all_that_is_known_is_there_once(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [known(16, 1.0), known(16, 2.0, SMALL)])
    library.store.save(known(16, 9.0))
    assert [one.problem for one in library.records(H100)] == [SMALL, SQUARE]


def test_the_users_record_of_another_card_of_the_model_counts(library: Records) -> None:
    own = library.store.save(known(16, 9.0, device=OTHER_NAME))
    assert (library.load(H100, SQUARE), library.records(H100)) == (own, [own])


def test_related_records_are_those_of_other_models(library: Records, shipped_folder: Path) -> None:
    ship(shipped_folder, [known(16, 1.0, device=H200), known(16, 2.0, SMALL)])
    other = library.store.save(known(16, 9.0, SMALL, PCIE))
    library.store.save(known(16, 9.0, device=find("a100")))
    assert [one.device for one in library.related(H100)] == [other.device, H200]


def test_a_broken_record_does_not_hide_the_device(library: Records) -> None:
    saved = library.store.save(known(16, 9.0, device=OTHER_NAME))
    folder = library.store.path(OTHER_NAME, SQUARE).parent
    (folder / "0.json").write_text("{")
    with pytest.warns(UserWarning, match="passed over"):
        assert library.records(H100) == [saved]


def test_shipped_ranges_serve(library: Records, shipped_folder: Path) -> None:
    one = Range(H100, SQUARE, "m", (Segment(1, 4096, 64),), 0.02)
    point = known(16, 9.0, replace(SQUARE, m=64))
    ship(shipped_folder, [point], [one])
    answer = lookup(replace(SQUARE, m=100), OTHER_NAME, library.store)
    assert answer is not None
    assert (answer.how, answer.record, answer.expected_loss) == ("range", point, 0.02)


# What uses them


def test_a_search_begins_with_what_is_shipped(library: Records, shipped_folder: Path) -> None:
    there = GemmTunable(SMALL, "tiled").candidates(
        PredictedRunner(SMALL, H100), lambda _: False, survey=None
    )
    winner = there.ranked[-1]  # not of the model's choice
    ship(
        shipped_folder,
        [record(replace(entry(16, 1.0), config=winner), problem=Problem(64, 64, 128))],
    )
    assert winner in GemmTunable(SMALL, "tiled").guesses(there, H100, library.store)[:4]


def test_best_finds_what_is_shipped(shipped_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(shipped_folder.parent / "cache"))
    there = known(16, 9.0)
    ship(shipped_folder, [there])
    assert lookups.best(4096, 4096, 4096, device="h100") == there


def test_what_nobody_tuned_is_chosen_but_is_no_best(
    shipped_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(shipped_folder.parent / "cache"))
    ship(shipped_folder, [known(16, 9.0)])
    chosen = lookups.choose(4096, 4096, 4000, compute="f32", device="h100")
    assert chosen.expected_loss
    with pytest.raises(NotFoundError):
        lookups.best(4096, 4096, 4000, device="h100")


def test_the_packages_own_files_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")
    from autotune import settings

    folder = settings.shipped_dir()
    assert folder.parent.name == "data"
    for path in folder.glob("*.json"):
        found = bundle.loads(path.read_bytes()).records
        assert all(path.stem.startswith(one.device.slug) for one in found)
        assert json.loads(path.read_text())["schema"] == bundle.SCHEMA
