"""Look-ups of problems whose record has an algorithm of cuBLASLt."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record

from autotune.cuda import cublaslt
from autotune.families.cublaslt import config_of
from autotune.families.plan import OWN, OWN_RESOURCES, Algorithm
from autotune.lookup.answer import Answer
from autotune.lookup.digest import RecordDigest
from autotune.lookup.fingerprints import fingerprint
from autotune.lookup.lookup import finder, lookup, recorded
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD, HOT, Objective
from autotune.problem import Problem
from autotune.records import Entry, Record, Records, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.settings import Mode

ALGORITHM = config_of(Algorithm(66, 20, 2, 1, 0, 0, 35, 0, 5), 4096)
SOURCE = "cublaslt:13.0.0 tiled:5e1f"


def of_library(time_us: float, cold_us: float | None = None) -> Entry:
    measured = Measurement(time_us, 0.1, 20, cold_us=cold_us, cold_spread_us=cold_us and 0.1)
    return Entry(ALGORITHM, measured, OWN_RESOURCES, 0.0, OWN)


def of_kernel(time_us: float, cold_us: float | None = None) -> Entry:
    measured = Measurement(time_us, 0.1, 20, cold_us=cold_us, cold_spread_us=cold_us and 0.1)
    return replace(entry(16, time_us), config=tiled(16), measurement=measured)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "13.0.0")


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "13.1.0")


def saved(store: Store, *entries: Entry, source: str = SOURCE, **fields: float) -> Record:
    return store.save(record(*entries, source=source, **fields))  # type: ignore[arg-type]


def found(store: Store, objective: Objective = HOT) -> Answer:
    answer = recorded(SQUARE, H100, Records(store), objective)
    assert answer is not None
    return answer


@pytest.mark.usefixtures("installed")
def test_recorded_algorithm_serves_with_its_version(store: Store) -> None:
    saved(store, of_library(700.0), of_kernel(900.0), baseline_us=720.0)
    answer = found(store)
    assert (answer.config, answer.time_us, answer.vendor) == (ALGORITHM, 700.0, False)
    assert answer.entry == of_library(700.0)


@pytest.mark.usefixtures("newer")
def test_next_entry_serves_with_another_version(store: Store) -> None:
    saved(store, of_library(700.0), of_kernel(900.0), baseline_us=950.0)
    answer = found(store)
    assert (answer.config, answer.time_us, answer.vendor) == (tiled(16), 900.0, False)
    assert answer.note.endswith("; faster by cuBLASLt 13.0.0, but 13.1.0 is loaded")


@pytest.mark.usefixtures("newer")
def test_vendor_serves_where_it_beats_the_next_entry(store: Store) -> None:
    saved(store, of_library(700.0), of_kernel(900.0), baseline_us=720.0)
    assert found(store).vendor


def test_missing_library_is_named(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "")
    saved(store, of_library(700.0), of_kernel(900.0))
    assert found(store).note.endswith("cuBLASLt 13.0.0, but it is not installed")


@pytest.mark.usefixtures("newer")
def test_record_of_algorithms_alone_serves_nothing(store: Store) -> None:
    saved(store, of_library(700.0), source="13.0.0")
    assert recorded(SQUARE, H100, Records(store)) is None


def test_library_is_not_loaded_where_a_kernel_wins(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "version", None)
    saved(store, of_kernel(600.0), of_library(700.0))
    assert found(store).config == tiled(16)


@pytest.mark.parametrize(("objective", "config"), [(HOT, tiled(16)), (COLD, ALGORITHM)])
@pytest.mark.usefixtures("installed")
def test_each_objective_has_its_winner(store: Store, objective: Objective, config: object) -> None:
    saved(store, of_kernel(600.0, 800.0), of_library(700.0, 750.0))
    assert found(store, objective).config == config


@pytest.mark.usefixtures("installed")
def test_algorithm_is_guessed_for_no_other_problem(store: Store) -> None:
    saved(store, of_library(700.0), of_kernel(900.0))
    near = Problem(4096, 4096, 4000)
    for find in (lambda *asked: lookup(asked[0], asked[1], store), finder(Mode())):
        answer = find(near, H100, Records(store), HOT)
        assert answer is not None
        assert answer.config.family != "cublaslt"


def test_digest_leaves_algorithms_out() -> None:
    digest = RecordDigest.of(record(of_library(700.0), of_kernel(900.0), source=SOURCE))
    assert [family.family for family in digest.families] == ["tiled"]


@pytest.mark.usefixtures("installed")
def test_range_takes_the_kernel_of_its_point(store: Store) -> None:
    saved(store, of_library(700.0), of_kernel(900.0))
    span = Range(H100, SQUARE, "m", (Segment(4000, 4096, 4096),), "measured")
    ranges.save(store.root, span)
    answer = lookup(replace(SQUARE, m=4032), H100, store)
    assert answer is not None
    assert (answer.how, answer.config) == ("range", tiled(16))


def test_fingerprint_has_the_librarys_version(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = []
    for version in ("13.0.0", "13.0.1"):
        monkeypatch.setattr(cublaslt, "version", lambda version=version: version)
        saved(store, of_library(700.0), source=version)
        digests.append(fingerprint([SQUARE], H100, store, recorded).shapes[SQUARE])
    assert None not in digests
    assert digests[0] != digests[1]
