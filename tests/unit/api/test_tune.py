"""`autotune.tune`: what it takes for one problem, a range or several, and what it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.sample_records import H100, record

import autotune
from autotune.api import ranges, shapes, tuning
from autotune.api.shapes import Shapes
from autotune.errors import ProblemError, UsageError
from autotune.measure.objective import HOT
from autotune.problem.arguments import Span
from autotune.problem.problem import Problem
from autotune.records.ranges import Range, Segment
from autotune.report.listing import ShapesReport
from autotune.tuning.options import Search
from autotune.tuning.trials import Observer

WIDE = Problem(16, 4096, 4096, "bf16")


RANGE = Range(H100, WIDE, "m", (Segment(1, 16, 1),))


Calls = list[tuple[str, Any, Search, dict[str, Any]]]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What reaches the functions below `tune`: which of them, the problem, the search, the rest."""
    noted: Calls = []

    def noting(name: str, result: object) -> Callable[..., object]:
        def call(asked: Any, search: Search, *place: Any, **options: Any) -> object:
            noted.append((name, asked, search, {"place": place, **options}))
            return result

        return call

    monkeypatch.setattr(tuning, "search", noting("one", record()))
    monkeypatch.setattr(ranges, "tune", noting("range", RANGE))
    monkeypatch.setattr(shapes, "tune_shapes", noting("several", ShapesReport(())))
    return noted


def tune(*problem: Any, **options: Any) -> Any:
    return autotune.tune(*problem, progress=False, **options)


@pytest.mark.parametrize(
    "problem",
    [("16x4096x4096:bf16",), (WIDE,), ((16, 4096, 4096),), ([16, 4096, 4096],), (16, 4096, 4096)],
)
def test_one_problem_gives_its_record(calls: Calls, problem: tuple[Any, ...]) -> None:
    assert tune(*problem, compute="bf16") == record()
    ((name, asked, *_),) = calls
    assert (name, asked) == ("one", WIDE)


@pytest.mark.parametrize("span", ["1..16x4096x4096", Span(WIDE, "m", 1)])
def test_range_gives_a_range(calls: Calls, span: Any) -> None:
    fields = {"compute": "bf16"} if isinstance(span, str) else {}
    assert tune(span, batch_invariant=True, **fields) == RANGE
    ((name, asked, search, options),) = calls
    assert (name, asked) == ("range", Span(WIDE, "m", 1))
    assert options["batch_invariant"]
    assert (search.seconds, search.deadline) == (60.0, None)  # of each search


def test_stated_seconds_are_those_of_a_whole_range(calls: Calls) -> None:
    tune("1..16x4096x4096", seconds=30)
    ((*_, search, _),) = calls
    assert search.deadline is not None


@pytest.mark.parametrize(
    ("shapes", "counts"),
    [
        (["16x4096x4096", "16x4096x4096", WIDE], {WIDE: 3}),
        ([(16, 4096, 4096), (64, 64, 64)], {WIDE: 1, Problem(64, 64, 64, "bf16"): 1}),
        ({"16x4096x4096": 5, WIDE: 2}, {WIDE: 7}),
        ((text for text in ["16x4096x4096"]), {WIDE: 1}),
        (Shapes({WIDE: 4}), {WIDE: 4}),
    ],
)
def test_several_problems_give_a_report(calls: Calls, shapes: Any, counts: Any) -> None:
    assert tune(shapes, compute="bf16", trials=7) == ShapesReport(())
    ((name, asked, search, _),) = calls
    assert (name, asked) == ("several", counts)
    assert (search.trials, search.seconds) == (7, None)


def test_file_of_shapes_is_several_problems(calls: Calls, tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    Shapes({WIDE: 4}).save(path)
    tune(path, seconds=90)
    ((name, asked, search, _),) = calls
    assert (name, asked, search.seconds) == ("several", {WIDE: 4}, 90)
    with pytest.raises(UsageError, match="states the compute of its shapes; leave it out"):
        tune(path, compute="f16")
    with pytest.raises(UsageError, match=r"shapes.json is a file; give pathlib.Path\('"):
        tune(str(path))


def test_keywords_replace_fields_of_the_search(calls: Calls) -> None:
    search = Search(effort="long", seed=3, objective="cold")
    tune(WIDE, search=search)
    tune(WIDE, search=search, effort="default", seconds=9, trials=4, objective="hot")
    (first, second) = (search for *_, search, _ in calls)
    assert (first.seed, first.trials, first.objective) == (3, 400, "cold")
    assert second == Search(seed=3, seconds=9, trials=4)


@pytest.mark.parametrize("device", [[0, 1], "0,1", "0, 1", "all"])
def test_several_gpus_share_the_work(calls: Calls, device: Any) -> None:
    tune(WIDE, device=device)
    ((*_, options),) = calls
    assert options["place"] == ("gpu", device, "auto")
    with pytest.raises(UsageError, match="a range takes one device, not"):
        tune("1..16x4096x4096", device=device)


def test_race_of_several_shapes_takes_one_device() -> None:
    with pytest.raises(UsageError, match="quick takes no devices"):
        tune([WIDE], device=[0, 1], effort="quick")


def test_one_device_stands_as_it_is(calls: Calls) -> None:
    for device in ("gpu:1", 1, "h100"):
        tune(WIDE, device=device)
    places = [options["place"] for *_, options in calls]
    assert places == [(device, None, "auto") for device in ("gpu:1", 1, "h100")]


def test_observer_takes_the_place_of_the_progress(calls: Calls) -> None:
    observer = Observer()
    autotune.tune(WIDE, progress=observer)
    autotune.tune("1..16x4096x4096", progress=observer)
    autotune.tune([WIDE], progress=observer)
    one, over, among = (options for *_, options in calls)
    assert one["progress"] is over["progress"] is among["progress"] is observer
    with tuning.shown_all(1, HOT, observer) as observed:
        assert observed(WIDE, 20.0) is observer


@pytest.mark.parametrize(
    ("problem", "options", "message"),
    [
        ([WIDE], {"batch_invariant": True}, "batch invariance is of a range; give one"),
        ([WIDE], {"search": Search(recording="a.json.gz")}, "several problems take no recording"),
        ("1..2x64x64", {"search": Search(recording="a.json.gz")}, "a range takes no recording"),
        (["1..2x64x64"], {}, r"1\.\.2x64x64 is a range, which is tuned alone"),
        (WIDE, {"search": Search(score=abs)}, "score is of tune_kernel"),
        (WIDE, {"effort": "longer"}, "unknown effort 'longer'"),
    ],
)
def test_what_does_not_go_together_is_refused(
    calls: Calls, problem: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        tune(problem, **options)
    assert calls == []


@pytest.mark.parametrize("problem", [(), ([64, 64],), ([WIDE, 64],), (64,), (64, 64)])
def test_other_problems_are_refused(calls: Calls, problem: tuple[Any, ...]) -> None:
    with pytest.raises(ProblemError):
        tune(*problem)
    assert calls == []


@pytest.mark.parametrize(
    ("function", "most"), [(autotune.tune, 14), (autotune.tune_kernel, 18), (autotune.matmul, 14)]
)
def test_functions_have_few_arguments(function: Callable[..., object], most: int) -> None:
    assert len(inspect.signature(function).parameters) <= most
