"""Choices for problems without a record, kept in the cache until something they rest on changes."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_runner import tiled
from support.logged import logs
from support.sample_records import H100, entry, record

import autotune
from autotune import settings
from autotune.cuda import cache
from autotune.families.config import Config
from autotune.lookup import lookup
from autotune.lookup.answer import Answer
from autotune.lookup.digest import FOLDER
from autotune.lookup.lookup import finder
from autotune.lookup.nearest import nearest
from autotune.measure.objective import HOT
from autotune.model import space
from autotune.problem import Problem
from autotune.records import Record, Records, Store, bundle, codec

NEAR = Problem(4096, 4096, 2048)

ASKED = Problem(4096, 4096, 2052)


def timed(problem: Problem, time_us: float, width: int = 16) -> Record:
    return record(replace(entry(width, time_us), config=tiled(width)), problem=problem)


pytestmark = pytest.mark.usefixtures("no_candidates")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space((tiled(32),)))
    monkeypatch.setattr(settings, "shipped_dir", lambda: tmp_path / "shipped")
    return Store(tmp_path / "cache")


@pytest.fixture
def choices(monkeypatch: pytest.MonkeyPatch) -> list[Problem]:
    """The problems for which a choice was made."""
    problems: list[Problem] = []

    def counted(problem: Problem, *arguments: Any) -> Answer | None:
        problems.append(problem)
        return nearest(problem, *arguments)

    monkeypatch.setattr(lookup, "nearest", counted)
    return problems


def ask(store: Store, problem: Problem = ASKED) -> Answer:
    answer = finder(settings.mode())(problem, H100, Records(store), HOT)
    assert answer is not None
    return answer


@pytest.mark.parametrize("recorded", [True, False])
def test_choice_is_made_once(recorded: bool, store: Store, choices: list[Problem]) -> None:
    if recorded:
        store.save(timed(NEAR, 900.0))
    first = ask(store)
    assert ask(store) == first
    assert (choices, first.how) == ([ASKED], "nearest" if recorded else "predicted")


def test_new_record_makes_a_new_choice(store: Store, choices: list[Problem]) -> None:
    store.save(timed(NEAR, 900.0))
    ask(store)
    store.save(timed(replace(NEAR, k=2056), 300.0, 32))
    assert ask(store).config == tiled(32)
    assert choices == [ASKED, ASKED]


@pytest.mark.parametrize("change", ["version", "sources", "shipped"])
def test_other_version_makes_a_new_choice(
    change: str,
    store: Store,
    choices: list[Problem],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask(store)
    if change == "version":
        monkeypatch.setattr(lookup, "RELEASE", "99")
    elif change == "sources":
        monkeypatch.setattr(lookup, "source_hash", lambda *_: "0" * 64)
    else:
        (tmp_path / "shipped").mkdir()
        (tmp_path / "shipped" / "more.jsonl.xz").write_text("{}")
        with logs("skipped"):
            ask(store)
    ask(store)
    assert choices == [ASKED, ASKED]


def site(folder: Path, *made: Record) -> str:
    """A folder of a site with one bundle."""
    folder.mkdir(exist_ok=True)
    (folder / "site.jsonl.xz").write_bytes(bundle.dumps(made))
    return str(folder)


def test_bundles_of_a_site_make_a_new_choice(
    store: Store, choices: list[Problem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = ask(store)
    monkeypatch.setenv("AUTOTUNE_SITE_DIR", site(tmp_path / "site", timed(NEAR, 300.0, 16)))
    assert ask(store).config == tiled(16)
    site(tmp_path / "site", timed(NEAR, 300.0, 8))
    assert ask(store).config == tiled(8)
    monkeypatch.delenv("AUTOTUNE_SITE_DIR")
    assert ask(store) == without
    assert choices == [ASKED] * 3


def test_record_with_its_times_restored_makes_a_new_choice(
    store: Store, choices: list[Problem]
) -> None:
    """As `rsync -a` and tar do."""
    store.save(timed(NEAR, 900.0, 16))
    path = store.path(H100, NEAR)

    def ask_dated() -> Config:
        for place in (path, path.parent, path.parent.parent):
            os.utime(place, ns=(10**18, 10**18))
        return ask(store).config

    assert ask_dated() == tiled(16)
    path.with_suffix(".new").write_bytes(codec.dumps(timed(NEAR, 900.0, 32)))
    path.with_suffix(".new").replace(path)
    assert ask_dated() == tiled(32)
    assert choices == [ASKED, ASKED]


def test_other_programs_make_a_new_choice(
    store: Store, choices: list[Problem], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_PROGRAMS_DIR", str(tmp_path))
    ask(store)
    (tmp_path / "sm_90.programs").write_bytes(cache.archive_of([], {}))
    ask(store)
    assert choices == [ASKED, ASKED]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]"])
def test_damaged_choice_is_made_again(damage: bytes, store: Store, choices: list[Problem]) -> None:
    first = ask(store)
    (path,) = (store.root / FOLDER).glob("*/*.json")
    path.write_bytes(damage)
    assert ask(store) == first
    assert choices == [ASKED, ASKED]


@pytest.mark.parametrize(
    "changed",
    [
        {"problem": "64x64x64:f32:nn"},
        {"config": "tiled:tile_width=64,specialized=1"},
        {"neighbour": "64x64x64:f32:nn"},
    ],
    ids=["another problem", "an illegal configuration", "a lost record"],
)
def test_choice_that_no_longer_holds_is_made_again(
    changed: dict[str, str], store: Store, choices: list[Problem]
) -> None:
    first = ask(store)
    (path,) = (store.root / FOLDER).glob("*/*.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))
    assert ask(store) == first
    assert choices == [ASKED, ASKED]


def test_record_of_the_problem_comes_first(store: Store) -> None:
    ask(store)
    store.save(timed(ASKED, 900.0))
    assert ask(store).how == "exact"


def test_cache_that_cannot_be_written_keeps_nothing(store: Store, choices: list[Problem]) -> None:
    store.root.parent.mkdir(exist_ok=True)
    store.root.write_text("no folder")
    assert ask(store).how == "predicted"
    ask(store)
    assert choices == [ASKED, ASKED]


def test_choose_keeps_what_it_finds(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(store.root))
    first = autotune.choose(ASKED, device="h100")
    assert [*(store.root / FOLDER).glob("*/*.json")]
    monkeypatch.setattr(lookup, "nearest", lambda *_: None)
    assert autotune.choose(ASKED, device="h100") == first
