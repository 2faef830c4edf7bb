"""Tuning of batch-invariant ranges, without a device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.sample_records import entry, record

import autotune
from autotune.api import invariant, ranges
from autotune.api.invariant import RACED_CONFIGS, OrderForecast, probes, promising_orders
from autotune.device import find
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.lookup.batch_invariant import ordered_by_time
from autotune.measure import targets
from autotune.measure.objective import HOT
from autotune.measure.targets import TargetOpener
from autotune.model.legality import Legality, order_of
from autotune.problem.arguments import Span
from autotune.records import FamilyRecord, Record, Records, Store
from autotune.records.ranges import Range, load
from autotune.tuning.options import Search
from autotune.tuning.tunable import GemmTunable, QuickTunable, SearchResult

H100 = find("h100")


SPAN = Span.parse("1..64x256x256:bf16:nt")


ORDER, OTHER = "wgmma bf16 swap=1 shared 256", "mma bf16 swap=0 2/32(256)"


@cache
def configs(order: str, m: int) -> tuple[Config, ...]:
    ranked = ordered_by_time(SPAN.at(m), H100, order)
    return tuple(config for _, config in ranked[:2])


def forecasts() -> list[OrderForecast]:
    best = {order: {m: configs(order, m) for m in (1, 64)} for order in (ORDER, OTHER)}
    return [OrderForecast(order, 1.0 + i, best[order]) for i, order in enumerate((ORDER, OTHER))]


class FakePlace:
    """Records the first configurations of a tunable, each with a time by its order."""

    tuned: list[GemmTunable]
    times: dict[str, float]

    @classmethod
    def run(cls, place: Any, tunable: GemmTunable, options: Search, observer: object) -> Record:
        del options, observer
        cls.tuned.append(tunable)
        problem = tunable.problem
        raced = getattr(tunable, "raced", None)
        ranked = raced.first if raced else configs(getattr(tunable, "order", ORDER), problem.m)
        timed = {config: cls.times.get(str(order_of(config, problem))) for config in ranked}
        entries = [
            replace(entry(16, time_us), config=config)
            for config, time_us in timed.items()
            if time_us
        ]
        plain = record(*entries, problem=problem, device=H100, evidence="predicted")
        result = SearchResult(H100, "predicted", plain.entries, None, plain.provenance)
        saved = place.store.save(tunable.record(result))
        assert isinstance(saved, Record)
        return saved


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    FakePlace.tuned, FakePlace.times = [], {ORDER: 2.0, OTHER: 3.0}
    monkeypatch.setattr(invariant.RangePlace, "run", lambda *arguments: FakePlace.run(*arguments))
    monkeypatch.setattr(invariant, "promising_orders", lambda *_: forecasts())


def tune() -> Range:
    return ranges.tune(SPAN, Search(trials=2), device="h100", batch_invariant=True)


def test_range_and_its_records_keep_the_order(tmp_path: Path) -> None:
    tuned = tune()
    assert (tuned.order, tuned.dimension, tuned.low, tuned.high) == (ORDER, "m", 1, 64)
    assert load(tmp_path, H100, invariant=True) == (tuned,)
    assert load(tmp_path, H100) == ()
    for point in tuned.points:
        own = Store(tmp_path).ordered(H100, point, ORDER)
        assert isinstance(own, FamilyRecord)
        assert {str(order_of(item.config, point)) for item in own.entries} == {ORDER}
        assert Records(Store(tmp_path)).load(H100, point) is None
    assert {getattr(item, "order", None) for item in FakePlace.tuned} == {ORDER}


def test_second_call_tunes_nothing_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tuned = tune()
    FakePlace.tuned = []
    monkeypatch.setattr(invariant, "promising_orders", None)  # nobody asks for an order again
    # Predictions never stand for what a search would find.
    monkeypatch.setattr(ranges, "_is_tuned", lambda *_, **__: True)
    assert tune() == tuned
    assert FakePlace.tuned == []


def test_quick_options_race_the_ends() -> None:
    ranges.tune(SPAN, Search(effort="quick"), device="h100", batch_invariant=True)
    assert all(isinstance(item, QuickTunable) for item in FakePlace.tuned)
    assert {getattr(item, "order", None) for item in FakePlace.tuned} == {ORDER}


def test_order_with_the_best_mean_of_races_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "measures", lambda _: True)
    assert invariant.choose_order(SPAN, H100, TargetOpener("h100"), Search()) == ORDER
    assert [len(item.raced.first) for item in FakePlace.tuned] == [4, 4]  # type: ignore[attr-defined]
    FakePlace.times = {ORDER: 2.0, OTHER: 1.5}
    assert invariant.choose_order(SPAN, H100, TargetOpener("h100"), Search()) == OTHER


def test_order_without_a_time_at_a_size_loses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(targets, "measures", lambda _: True)
    FakePlace.times = {OTHER: 9.0}
    assert invariant.choose_order(SPAN, H100, TargetOpener("h100"), Search()) == OTHER


@pytest.mark.parametrize(
    ("text", "arguments"),
    [("64x1..256x256:bf16:nt", {}), ("1..64x256x256:bf16:nt", {"family": "mma"})],
)
def test_impossible_range_is_refused(text: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"batch invariance|a range takes no family"):
        autotune.tune(text, device="h100", batch_invariant=True, **arguments)


def test_call_is_not_tuned_alone() -> None:
    array = SimpleNamespace()
    policy = autotune.Policy(batch_invariant=True, tune=True)
    with pytest.raises(UsageError, match="not tuned alone"):
        autotune.matmul(array, array, policy=policy)


def test_problem_is_tuned_once_at_each_end() -> None:
    tune()
    problems = [item.problem for item in FakePlace.tuned]
    assert problems[:2] == [SPAN.at(1), SPAN.at(64)]
    assert len({*problems}) == len(problems)


def test_probes_are_even_in_their_logarithm() -> None:
    assert probes(Span.parse("1..8192x512x1024")) == (1, 20, 406, 8192)
    assert probes(Span.parse("3..4x512x1024")) == (3, 4)


def test_promising_orders_serve_every_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(invariant, "PROBES", 2)
    monkeypatch.setattr(invariant, "LEADERS", 1)
    span = Span.parse("8..16x128x256:bf16:nt")
    forecasts = promising_orders(span, H100)
    assert [forecast.factor for forecast in forecasts] == sorted(each.factor for each in forecasts)
    for forecast in forecasts:
        assert tuple(forecast.best) == probes(span)
        for size, configs in forecast.best.items():
            problem = span.at(size)
            assert 1 <= len(configs) <= RACED_CONFIGS
            assert all(Legality(problem, H100, forecast.order)(config) for config in configs)


def test_search_in_an_order_has_no_contenders(tmp_path: Path) -> None:
    tunable = invariant.OrderedGemm(SPAN.at(64), order=ORDER)
    assert tunable.contenders(H100, Store(tmp_path), HOT) is None
