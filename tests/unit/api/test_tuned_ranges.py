"""Tuned ranges: the ends are searched, sizes between them raced."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from support.sample_records import H100, record

import autotune
from autotune.api import ranges, tuning
from autotune.device import Device
from autotune.measure.targets import TargetOpener
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Record, Store
from autotune.tuning.options import Search

Asked = list[tuple[str, int]]


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The tuned sizes and the kind of tuning. One size between the ends keeps the loss of all."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "none"))
    tuned: Asked = []

    def tune(_: TargetOpener, problem: Problem, options: Search, **__: object) -> Record:
        tuned.append(("race" if options.quick else "search", problem.m))
        return Store(tmp_path).save(record(problem=problem, device=H100))

    def expected(
        span: Span, _: Device, sizes: dict[int, Record], *__: object
    ) -> dict[int, dict[int, float]]:
        loss = 0.0 if len(sizes) > 2 else 1.0
        return {
            probe: dict.fromkeys((span.low, span.high), 0.0 if probe in sizes else loss)
            for probe in span.probes
        }

    monkeypatch.setattr(tuning, "search_at", tune)
    monkeypatch.setattr(ranges, "expected", expected)
    return tuned


def test_sizes_between_the_ends_are_raced(asked: Asked) -> None:
    autotune.tune("1..64x64x64", device="h100", progress=False)
    assert asked[:2] == [("search", 1), ("search", 64)]
    (kind, size), *_ = asked[2:]
    assert kind == "race"
    assert 1 < size < 64


def test_tuned_sizes_are_an_octave_apart_at_most(asked: Asked) -> None:
    autotune.tune("5..300x64x64", device="h100", progress=False)
    sizes = sorted(size for _, size in asked)
    assert (sizes[0], sizes[-1]) == (5, 300)
    assert all(following <= 2 * size for size, following in pairwise(sizes))
    assert {kind for kind, size in asked if 5 < size < 300} == {"race"}


def test_range_of_one_family_is_searched_throughout(asked: Asked) -> None:
    autotune.tune("1..64x64x64", device="h100", family="tiled", progress=False)
    assert [kind for kind, _ in asked] == ["search"] * 3
