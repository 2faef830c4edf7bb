"""Shapes with counts: their file, and tuning them under one budget."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.fake_runner import tiled
from support.sample_recording import DEVICE, PROBLEM, ship
from support.sample_records import H100, entry, record

import autotune
from autotune.api import shapes, tuning
from autotune.api.shapes import LEAST_S, TIME_CONSTANT_S, Gain, Shapes, shares, spend
from autotune.errors import (
    AutotuneError,
    BudgetError,
    CacheError,
    MissingError,
    ProblemError,
    UsageError,
)
from autotune.measure.targets import TargetOpener
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.report.listing import ShapesReport
from autotune.tuning.options import SHAPE_BUDGET_S, Search

SMALL, LARGE = Problem(64, 64, 64), Problem(2048, 2048, 2048)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    ship(tmp_path / "recordings", monkeypatch)
    return tmp_path / "cache"


# The file.


def test_file_keeps_shapes_and_counts(tmp_path: Path) -> None:
    shapes = Shapes({Problem.parse("16x64x32:f8:nt:scale=row:fast:out=f16"): 3, SMALL: 7})
    shapes.save(tmp_path / "shapes.json")
    assert Shapes.load(tmp_path / "shapes.json") == shapes


def test_file_lists_the_most_frequent_first(tmp_path: Path) -> None:
    Shapes({SMALL: 1, LARGE: 5}).save(tmp_path / "shapes.json")
    data = json.loads((tmp_path / "shapes.json").read_text())
    assert data == {"schema": 1, "shapes": {str(LARGE): 5, str(SMALL): 1}}
    assert [*data["shapes"]] == [str(LARGE), str(SMALL)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "cannot be read: No such file"),
        ("{", "no list of shapes: "),
        ('{"schema": 9, "shapes": {}}', "no list of shapes: .*schema is 9"),
        ('{"schema": 1}', "no list of shapes: "),
        ('{"schema": 1, "shapes": {"64x64": 1}}', "no list of shapes: malformed shape '64x64'"),
        ('{"schema": 1, "shapes": {"64x64x64": 0}}', "no list of shapes: "),
    ],
)
def test_other_files_are_refused(tmp_path: Path, text: str | None, message: str) -> None:
    path = tmp_path / "shapes.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(UsageError, match=message) as error:
        Shapes.load(path)
    assert str(error.value).startswith(str(path))


def test_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(AutotuneError, match=r"cannot write .*No such file"):
        Shapes({SMALL: 1}).save(tmp_path / "absent" / "shapes.json")


def test_list_counts_repeated_shapes() -> None:
    assert Shapes.of(["64x64x64", (64, 64, 64), LARGE]) == {SMALL: 2, LARGE: 1}
    assert Shapes.of({"64x64x64:f32": 4, SMALL: 2}) == {SMALL: 6}


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_impossible_counts_are_refused(count: Any) -> None:
    with pytest.raises(UsageError, match="give a whole number of at least 1"):
        Shapes.of({"64x64x64": count})


def test_impossible_shapes_are_refused() -> None:
    with pytest.raises(ProblemError, match="malformed shape"):
        autotune.tune(["64"])


def test_text_with_a_shape_in_each_line_is_read(tmp_path: Path) -> None:
    path = tmp_path / "shapes.txt"
    path.write_text("# of a model\n16x4096x4096:bf16:nt\n\n16x4096x4096:bf16:nt\r\n64x64x64\n")
    wide = Problem(16, 4096, 4096, "bf16", "nt")
    assert Shapes.load(path) == {wide: 2, Problem(64, 64, 64): 1}


@pytest.mark.parametrize("text", ["m,n,k\n16,4096,4096\n", "[[16, 4096, 4096]]\n", "[1\n"])
def test_other_lists_are_told_the_form_that_is_read(text: str, tmp_path: Path) -> None:
    path = tmp_path / "shapes.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match="a line holds a shape, such as 16x4096x4096:bf16:nt"):
        Shapes.load(path)


# Tuning.


class Searches:
    """Stands for `tuning.search_at`: notes the calls, and records a time or fails."""

    def __init__(self, store: Store) -> None:
        self.calls: list[tuple[Problem, float]] = []
        self.store, self.error = store, dict[Problem, Exception]()

    def __call__(self, _: TargetOpener, problem: Problem, options: Search, **__: Any) -> Record:
        assert options.seconds is not None
        self.calls.append((problem, options.seconds))
        if problem in self.error:
            raise self.error[problem]
        best = replace(entry(16, 10.0), config=tiled(16))
        return self.store.save(record(best, problem=problem, baseline_us=12.0))


@pytest.fixture
def searches(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Searches:
    searches = Searches(Store(cache))
    monkeypatch.setattr(tuning, "search_at", searches)
    return searches


def tuned(shapes: Any, **options: Any) -> ShapesReport:
    report: ShapesReport = autotune.tune(shapes, device=H100, progress=False, **options)
    return report


def test_most_worthwhile_shape_is_tuned_first(searches: Searches) -> None:
    tuned([SMALL, LARGE], seconds=30)
    assert [problem for problem, _ in searches.calls] == [LARGE, SMALL]
    searches.calls.clear()
    often = Problem(64, 64, 72)
    tuned({often: 10**6, Problem(2048, 2048, 2056): 1}, seconds=30)
    assert searches.calls[0][0] == often


def test_budget_is_that_of_all_searches(searches: Searches) -> None:
    tuned([SMALL, LARGE], seconds=30)
    first, second = (seconds for _, seconds in searches.calls)
    assert first < 30
    assert first + second == pytest.approx(30 + first, abs=0.5)  # the first took no time


def test_default_budget_is_that_of_every_shape(searches: Searches) -> None:
    tuned([SMALL, Problem(64, 64, 72)])
    assert searches.calls[-1][1] == pytest.approx(2 * SHAPE_BUDGET_S, abs=0.5)


@pytest.mark.usefixtures("searches")
def test_row_has_times_of_all_runs() -> None:
    (row,) = tuned({SMALL: 3})
    assert (row.time_us, row.vendor_us, row.count) == (30.0, 36.0, 3)
    assert row.gain == pytest.approx(0.2)
    assert row.searched_s > 0


def test_second_call_searches_what_is_not_tuned(searches: Searches) -> None:
    tuned([SMALL], seconds=10)
    settled = searches.store.load(H100, SMALL)
    assert settled is not None
    provenance = replace(settled.provenance, seconds=60.0)
    searches.store.save(replace(settled, provenance=provenance))
    searches.calls.clear()
    report = tuned([SMALL, LARGE], seconds=10)
    assert [problem for problem, _ in searches.calls] == [LARGE]
    assert [row.why for row in report] == ["tuned before", None]


def test_interrupt_keeps_what_was_tuned(searches: Searches) -> None:
    searches.error[SMALL] = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        tuned([SMALL, LARGE], seconds=30)
    assert searches.store.load(H100, LARGE) is not None


def test_shape_that_fails_does_not_stop_the_others(searches: Searches) -> None:
    searches.error[LARGE] = AutotuneError("no configuration works")
    report = tuned([SMALL, LARGE], seconds=30)
    assert [row.why for row in report] == [None, "no configuration works"]
    assert report.failed


@pytest.mark.parametrize("error", [MissingError("no driver"), CacheError("disk full")])
def test_error_of_the_machine_ends_all(searches: Searches, error: Exception) -> None:
    searches.error[LARGE] = error
    with pytest.raises(type(error)):
        tuned([SMALL, LARGE], seconds=30)
    assert len(searches.calls) == 1


def test_shape_larger_than_the_memory_is_a_row(searches: Searches) -> None:
    report = tuned([Problem(2**19, 2**19, 64), SMALL], seconds=30)
    assert "GiB" in str(report[0].why)
    assert [problem for problem, _ in searches.calls] == [SMALL]


def test_short_budget_leaves_the_least_worthwhile(
    searches: Searches, monkeypatch: pytest.MonkeyPatch
) -> None:
    elapsed = lambda: sum(seconds for _, seconds in searches.calls)  # noqa: E731
    monkeypatch.setattr(shapes, "spend", partial(spend, clock=elapsed))
    report = tuned([SMALL, LARGE], seconds=4)
    assert [row.why for row in report] == ["no time left", None]


def test_budget_that_tunes_no_shape_is_an_error(searches: Searches) -> None:
    with pytest.raises(BudgetError, match=r"budget is 2 s, which was over .*; give 40 s or more"):
        tuned([SMALL, LARGE], seconds=2)
    searches.error = {SMALL: BudgetError("over"), LARGE: BudgetError("over")}
    with pytest.raises(BudgetError, match="budget is 8 s, which was over before a shape was tuned"):
        tuned([SMALL, LARGE], seconds=8)


def test_shape_that_time_cut_off_is_no_failure(searches: Searches) -> None:
    searches.error[SMALL] = BudgetError("over")
    report = tuned([SMALL, LARGE], seconds=30)
    assert ([row.why for row in report], report.failed) == (["no time left", None], False)


@pytest.mark.usefixtures("searches")
def test_report_is_a_table() -> None:
    text = str(tuned({SMALL: 2, LARGE: 1}, seconds=30))
    assert text.splitlines()[0].split()[:3] == ["shape", "runs", "us"]
    assert "2 shapes, 3 runs: 30.0 us, by cuBLAS 36.0 us" in text


def test_real_searches_share_a_recording() -> None:
    report = autotune.tune([PROBLEM], device=DEVICE, trials=3, seconds=5, progress=False)
    assert report[0].answer is not None
    assert report[0].answer.evidence == "replayed"


def test_one_bar_shows_all_searches(searches: Searches, monkeypatch: pytest.MonkeyPatch) -> None:
    observed: list[tuple[Problem, float]] = []

    def shown_all(count: int, *_: Any) -> Any:
        assert count == 2
        note: Callable[..., None] = lambda *call: observed.append(call)  # noqa: E731
        return nullcontext(note)

    monkeypatch.setattr(tuning, "shown_all", shown_all)
    shapes.tune_shapes(Shapes.of([SMALL, LARGE]), Search(seconds=30), H100)
    assert observed == searches.calls


def test_only_lists_of_shapes_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    Shapes({SMALL: 1}).save(path)
    Shapes({LARGE: 2}).save(path)
    assert Shapes.load(path) == {LARGE: 2}
    path.write_text('{"thesis": []}')
    with pytest.raises(AutotuneError, match="exists and is not a list of shapes of autotune"):
        Shapes({SMALL: 1}).save(path)
    assert path.read_text() == '{"thesis": []}'


class Spent:
    """Spent that take their budget, or end earlier, on a clock of their own."""

    def __init__(self, ends: dict[str, float] | None = None) -> None:
        self.now, self.calls = 100.0, list[tuple[str, float]]()
        self._ends = ends or {}

    def __call__(self, problem: str, seconds: float) -> bool:
        self.calls.append((problem, round(seconds, 6)))
        left = self._ends.get(problem, math.inf)
        took = min(left, seconds)
        self._ends[problem] = left - took
        self.now += took
        return left <= seconds

    def spend(self, gains: dict[str, Gain], budget_s: float) -> None:
        spend(gains, budget_s, self, lambda: self.now)


def test_equal_gains_share_equally() -> None:
    assert shares({"a": Gain(10, 0.1), "b": Gain(10, 0.1)}, 20) == pytest.approx({"a": 10, "b": 10})


def test_shares_end_at_one_rate_of_saving() -> None:
    gains = {"a": Gain(90, 0.1), "b": Gain(30, 0.1), "c": Gain(30, 0.2)}
    seconds = shares(gains, 60)
    assert sum(seconds.values()) == pytest.approx(60)
    rates = [
        gains[key].saving_us * math.exp(-time_s / TIME_CONSTANT_S)
        for key, time_s in seconds.items()
    ]
    assert rates == pytest.approx([rates[0]] * 3)


def test_shares_are_the_best_of_all_divisions() -> None:
    gains = {"a": Gain(70, 0.1), "b": Gain(20, 0.15)}

    def left_us(first: float) -> float:
        pairs = zip(gains.values(), (first, 20 - first), strict=True)
        return sum(gain.saving_us * math.exp(-time_s / TIME_CONSTANT_S) for gain, time_s in pairs)

    best = min(range(1, 200), key=lambda tenths: left_us(tenths / 10)) / 10
    assert shares(gains, 20)["a"] == pytest.approx(best, abs=0.1)


def test_gains_too_small_for_a_search_get_none() -> None:
    gains = {"a": Gain(1000, 0.1), "b": Gain(900, 0.1), "c": Gain(1, 0.1)}
    seconds = shares(gains, 12)
    assert [*seconds] == ["a", "b"]
    assert min(seconds.values()) >= LEAST_S
    assert sum(seconds.values()) == pytest.approx(12)


def test_budget_below_one_search_buys_none() -> None:
    assert shares({"a": Gain(1, 0.1)}, LEAST_S - 0.1) == {}


def test_largest_gain_is_searched_first() -> None:
    searches = Spent()
    searches.spend({"small": Gain(10, 0.1), "large": Gain(20, 0.1)}, 20)
    assert [problem for problem, _ in searches.calls] == ["large", "small"]
    assert searches.now == pytest.approx(120)


def test_time_that_a_search_leaves_goes_to_the_rest() -> None:
    searches = Spent({"a": 1.0})
    searches.spend({"a": Gain(20, 0.1), "b": Gain(10, 0.1), "c": Gain(10, 0.1)}, 31)
    assert searches.calls[1:] == [("b", 15.0), ("c", 15.0)]


def test_searches_go_on_while_time_is_left() -> None:
    searches = Spent({"a": 100.0, "b": 1.0})
    searches.spend({"a": Gain(20, 0.1), "b": Gain(19, 0.1)}, 14)
    assert [problem for problem, _ in searches.calls] == ["a", "b", "a"]
    assert searches.now == pytest.approx(114)


def test_searches_that_ended_are_not_repeated() -> None:
    searches = Spent({"a": 1.0, "b": 2.0})
    searches.spend({"a": Gain(20, 0.1), "b": Gain(19, 0.1)}, 600)
    assert [problem for problem, _ in searches.calls] == ["a", "b"]


def test_earlier_searches_count() -> None:
    fresh, begun = Gain(10, 0.1), Gain(10, 0.1, searched_s=4.0)
    seconds = shares({"fresh": fresh, "begun": begun}, 20)
    assert seconds["fresh"] - seconds["begun"] == pytest.approx(4)


def test_settled_gains_are_not_searched() -> None:
    searches = Spent()
    searches.spend({"a": Gain(1e9, 0.1, searched_s=60), "b": Gain(1e9, 0.001)}, 600)
    assert searches.calls == []
