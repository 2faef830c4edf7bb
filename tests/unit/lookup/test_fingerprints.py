"""The fingerprint: equal exactly where the same kernels would run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, own_machine, printed, run
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record
from torch_fingerprint import check_ranks

import autotune
from autotune.cuda import compiler
from autotune.errors import MissingError
from autotune.families.plan import Template
from autotune.lookup import lookup
from autotune.lookup.fingerprints import fingerprint
from autotune.problem import Problem
from autotune.records import Record, Store, ranges
from autotune.records.ranges import Range, Segment

OTHER = Problem(64, 64, 64)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(compiler, "named_keys", keys_of("sources"))
    return own_machine(monkeypatch, tmp_path)


def keys_of(sources: str) -> Callable[[Iterable[Template], str], dict[Template, str]]:
    """Stands for `compiler.named_keys` with kernel sources of that text."""
    return lambda templates, arch: {
        item: f"{sources} {item.expression} {arch}" for item in templates
    }


def recorded(width: int = 16, baseline_us: float = 120.0) -> Record:
    best = replace(entry(16, 100.0), config=tiled(width))
    return record(best, baseline_us=baseline_us)


def printed_by(root: Path, *records: Record, shapes: Iterable[Problem] = ()) -> str:
    """The fingerprint of a cache with these records."""
    store = Store(root)
    for item in records:
        store.save(item)
    return str(fingerprint(shapes, H100, store, lookup.recorded))


def test_same_kernels_have_one_fingerprint(tmp_path: Path) -> None:
    ours, theirs = recorded(), recorded()
    provenance = replace(theirs.provenance, date="2020-02-02T00:00:00+00:00", trials=7)
    theirs = replace(theirs, provenance=provenance)
    assert printed_by(tmp_path / "a", ours) == printed_by(tmp_path / "b", theirs)


@pytest.mark.parametrize(
    "other",
    [
        recorded(32),
        replace(recorded(), evidence="replayed"),
        recorded(baseline_us=50.0),
        record(replace(entry(16, 100.0), config=tiled(16)), problem=OTHER),
    ],
    ids=["configuration", "evidence", "vendor", "problem"],
)
def test_other_kernels_have_other_fingerprints(tmp_path: Path, other: Record) -> None:
    assert printed_by(tmp_path / "a", recorded()) != printed_by(tmp_path / "b", other)


def test_other_sources_have_another_fingerprint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = printed_by(tmp_path / "a", recorded())
    monkeypatch.setattr(compiler, "named_keys", keys_of("other sources"))
    assert printed_by(tmp_path / "a") != ours


def test_machine_without_a_compiler_has_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = printed_by(tmp_path / "a", recorded())

    def missing(*_: Any) -> Any:
        raise MissingError("no CUDA compiler")

    monkeypatch.setattr(compiler, "named_keys", missing)
    assert printed_by(tmp_path / "a") not in (ours, printed_by(tmp_path / "b"))


def test_ranges_count(tmp_path: Path) -> None:
    ours = printed_by(tmp_path / "a", recorded())
    segments = (Segment(1, SQUARE.m, SQUARE.m),)
    tuned = Range(H100, SQUARE, "m", segments)
    ranges.save(tmp_path / "a", tuned)
    assert printed_by(tmp_path / "a") != ours


def test_only_the_listed_shapes_count(tmp_path: Path) -> None:
    second = record(replace(entry(16, 100.0), config=tiled(16)), problem=OTHER)
    alone = printed_by(tmp_path / "a", recorded(), shapes=[SQUARE])
    assert printed_by(tmp_path / "b", recorded(), second, shapes=[SQUARE]) == alone
    assert printed_by(tmp_path / "b") != alone


def test_public_function_prints_what_the_verb_prints(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Store(cache).save(recorded())
    text = printed(capsys, "cache", "list", "--fingerprint", "--device", H100.name)
    assert text.strip() == str(autotune.fingerprint(device=H100))
    shape = str(SQUARE)
    data: Any = answer(capsys, "cache", "list", "--fingerprint", shape, "--device", H100.name)
    ours = autotune.fingerprint(SQUARE, device=H100)
    assert data == {"fingerprint": ours.digest, "shapes": {shape: ours.shapes[SQUARE]},
                    "ranges": {}}  # fmt: skip
    table = printed(capsys, "cache", "list", "--fingerprint", shape, "--device", H100.name)
    assert str(ours.shapes[SQUARE])[:16] in table


@pytest.mark.usefixtures("cache")
def test_frozen_shape_without_a_record_runs_nothing() -> None:
    with autotune.policy(frozen=True):
        assert autotune.fingerprint(OTHER, device=H100).shapes == {OTHER: None}


def test_impossible_shape_is_a_usage_error() -> None:
    assert run("cache", "list", "--fingerprint", "64x64", "--device", H100.name) == 2


# The example.


class Ranks:
    """Stands for `torch.distributed` of two ranks."""

    def __init__(self, theirs: str) -> None:
        self.theirs = theirs

    def get_world_size(self) -> int:
        return 2

    def all_gather_object(self, gathered: list[str], ours: str) -> None:
        gathered[:] = [ours, self.theirs]


def test_example_stops_where_ranks_differ() -> None:
    check_ranks(Ranks("same"), "same")
    with pytest.raises(SystemExit, match=r"different kernels \(0: ours, 1: theirs\)"):
        check_ranks(Ranks("theirs"), "ours")
