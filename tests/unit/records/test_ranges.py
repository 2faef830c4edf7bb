"""Ranges of sizes: their text, their file, and the points that are tuned."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from dataclasses import replace
from io import StringIO
from itertools import pairwise
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from rich.console import Console
from support.fake_runner import tiled
from support.logged import logs
from support.sample_records import H100, entry, record

import autotune
from autotune.api.ranges import cover
from autotune.device import Device
from autotune.errors import BudgetError, NotFoundError, ProblemError
from autotune.families.config import Config
from autotune.measure.objective import COLD
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Record, Store
from autotune.records import ranges as stored
from autotune.records.ranges import Range, Segment
from autotune.report.listing import range_table

TOP = Problem(512, 1024, 1024)

TWO = (Segment(1, 16, 16), Segment(17, 512, 512))


def tuned_range(**changed: Any) -> Range:
    fields: dict[str, Any] = {"dimension": "m", "segments": TWO}
    return Range(H100, TOP, **(fields | changed))


# Points of a range


@pytest.mark.parametrize(("size", "point"), [(1, 16), (16, 16), (17, 512), (512, 512)])
def test_each_size_has_its_point(size: int, point: int) -> None:
    assert tuned_range().point(replace(TOP, m=size)) == replace(TOP, m=point)


@pytest.mark.parametrize(
    "problem",
    [replace(TOP, m=513), replace(TOP, n=512), replace(TOP, layout="nt"), replace(TOP, batch=2)],
    ids=str,
)
def test_another_problem_has_no_point(problem: Problem) -> None:
    assert tuned_range().point(problem) is None


def test_text_states_the_varying_dimension() -> None:
    short = replace(TOP, compute="bf16", epilogue="relu")
    assert str(replace(tuned_range(), problem=short)) == "1..512x1024x1024:bf16:nn:relu"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"dimension": "batch"}, "dimension is 'batch'"),
        ({"segments": ()}, "without segments"),
        ({"segments": (TWO[0], Segment(18, 512, 512))}, "18.. follows a segment that ends at 16"),
        ({"segments": TWO[:1]}, "end at 16, the problem is 512x1024x1024:f32:nn"),
        ({"evidence": "guessed"}, "unknown evidence 'guessed'"),
        ({"objective": "warm"}, "unknown objective 'warm'; give one of hot, cold"),
    ],
)
def test_impossible_range_is_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        tuned_range(**changed)


@pytest.mark.parametrize("sizes", [(0, 4, 4), (5, 4, 4), (1, 4, 0)])
def test_impossible_segment_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="segment"):
        Segment(*sizes)


# On disk


def test_saved_range_is_loaded(tmp_path: Path) -> None:
    stored.save(tmp_path, tuned_range())
    assert stored.load(tmp_path, H100) == (tuned_range(),)


def test_later_range_replaces_one_of_the_same_sizes(tmp_path: Path) -> None:
    stored.save(tmp_path, tuned_range())
    later = tuned_range(segments=(Segment(1, 512, 512),))
    stored.save(tmp_path, later)
    assert stored.load(tmp_path, H100) == (later,)


def test_predicted_range_does_not_replace_a_measured_one(tmp_path: Path) -> None:
    stored.save(tmp_path, tuned_range())
    stored.save(tmp_path, tuned_range(evidence="predicted"))
    assert {tuned.evidence for tuned in stored.load(tmp_path, H100)} == {"measured", "predicted"}


@pytest.mark.parametrize(
    "broken",
    [
        {"segments": [[1, 512]]},
        {"segments": [[1, True, 3]]},
        {"segments": 3},
        {"problem": "1x2"},
        {"problem": "64x64x64"},
        {"schema": 9},
        {"evidence": None},
        {"objective": "warm"},
        {"device": 3},
    ],
    ids=str,
)
def test_broken_file_is_skipped_with_a_warning(tmp_path: Path, broken: dict[str, object]) -> None:
    stored.save(tmp_path, tuned_range())
    path = stored.path_of(tmp_path, tuned_range())
    path.write_text(json.dumps(json.loads(path.read_text()) | broken))
    with logs(f"{path.name}: skipped"):
        assert stored.load(tmp_path, H100) == ()


# The text


def test_text_of_a_span() -> None:
    assert Span.parse("64x16..4096x32:bf16:nt") == Span(
        Problem(64, 4096, 32, "bf16", "nt"), "n", 16
    )


@pytest.mark.parametrize(
    "text",
    [
        "512x512x512",
        "1..2x1..2x3",
        "8..4x4x4",
        "0..4x4x4",
        "1..x4x4",
        "1..4..8x4x4",
        "1..4x4",
        "-1..4x4x4",
    ],
)
def test_malformed_span_is_refused(text: str) -> None:
    with pytest.raises(ProblemError, match=r"malformed|range"):
        Span.parse(text)


def test_probes_are_the_ends_and_sizes_between() -> None:
    assert Span.parse("5..50x4x4").probes == (5, 6, 8, 11, 16, 23, 32, 45, 50)


# Which points are tuned


class TwoConfigSearch:
    """A search that records the better of two configurations by the cost model."""

    def __init__(self, store: Store, card: Device = H100) -> None:
        self.asked: list[int] = []
        self._store, self._card = store, card

    def __call__(self, problem: Problem, _until: float | None = None) -> Record:
        self.asked.append(problem.m)
        entries = [
            replace(entry(width, cost.predict(tiled(width), problem, H100)), config=tiled(width))
            for width in (8, 32)
        ]
        return self._store.save(record(*entries, problem=problem, device=self._card))


SPAN = Span.parse("1..512x1024x1024")

OCTAVES = [2**octave for octave in range(1, 9)]


def cover_with(store: Store, search: TwoConfigSearch, **options: Any) -> Range:
    return cover(SPAN, H100, store, search, search, **options)


def test_one_size_of_each_octave_is_tuned_after_the_ends(store: Store) -> None:
    search = TwoConfigSearch(store)
    covered = cover_with(store, search)
    assert search.asked == [1, 512, *OCTAVES]
    assert (covered.low, covered.high, covered.evidence) == (1, 512, "measured")
    assert stored.load(store.root, H100) == (covered,)


def test_ends_are_searched_and_sizes_between_raced(store: Store) -> None:
    search, race = TwoConfigSearch(store), TwoConfigSearch(store)
    cover(Span.parse("5..300x1024x1024"), H100, store, search, race)
    assert search.asked == [5, 300]
    sizes = [5, *race.asked, 300]
    assert all(low < high <= 2 * low for low, high in pairwise(sizes))


def test_sizes_run_the_faster_of_their_neighbours(store: Store) -> None:
    covered = cover_with(store, TwoConfigSearch(store))
    for probe in SPAN.probes:
        point = covered.point(SPAN.at(probe))
        tuned = sorted([1, 512, *OCTAVES])
        beside = tuned[bisect_left(tuned, probe)], tuned[bisect_right(tuned, probe) - 1]
        records = {size: store.load(H100, SPAN.at(size)) for size in beside}
        times = {
            size: cost.predict(row.best.config, SPAN.at(probe), H100)
            for size, row in records.items()
            if row
        }
        assert point is not None
        assert times[point.m] == min(times.values())


def test_neighbours_are_checked_by_the_clusters_of_their_card(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejection(
        config: Config, problem: Problem, device: Device, *, recorded: bool
    ) -> str | None:
        del config, problem, recorded
        return None if device.clusters == (66, 30, 15) else "other clusters"

    monkeypatch.setattr(space, "rejection", rejection)
    search = TwoConfigSearch(store, replace(H100, clusters=(66, 30, 15)))
    assert {point.m for point in cover_with(store, search).points} <= {1, 512, *OCTAVES}


def test_recorded_points_are_not_tuned_again(store: Store) -> None:
    cover_with(store, TwoConfigSearch(store))
    again = TwoConfigSearch(store)
    cover_with(store, again)
    assert again.asked == []


def test_interrupt_loses_no_point(store: Store) -> None:
    search = TwoConfigSearch(store)

    def pressed(problem: Problem, until: float | None) -> Record:
        if len(search.asked) == 3:
            raise KeyboardInterrupt
        return search(problem, until)

    with pytest.raises(KeyboardInterrupt):
        cover(SPAN, H100, store, pressed, pressed)
    assert {row.problem.m for row in store.records(H100)} == {1, 2, 512}
    assert len(stored.load(store.root, H100)) == 1


def test_range_of_one_size_is_one_point(store: Store) -> None:
    search = TwoConfigSearch(store)
    covered = cover(Span.parse("64..64x64x64"), H100, store, search, search)
    assert covered.segments == (Segment(64, 64, 64),)


def test_searches_of_a_range_share_its_time(store: Store) -> None:
    search, turns = TwoConfigSearch(store), list[float]()

    def timed(problem: Problem, until: float | None) -> Record:
        assert until is not None
        turns.append(until)
        return search(problem)

    deadline = monotonic() + 1000
    cover(SPAN, H100, store, timed, timed, deadline=deadline)
    assert len(turns) == 2 + len(OCTAVES)
    # Half of the time is for the ends, a quarter for each.
    assert turns[0] == pytest.approx(deadline - 750, abs=20)
    assert turns[1] == pytest.approx(deadline - 500, abs=20)
    assert all(turn <= deadline for turn in turns)


def test_range_whose_time_is_over_is_recorded_as_it_is(store: Store) -> None:
    search = TwoConfigSearch(store)

    def over(*_: object) -> Record:
        raise BudgetError("the time was over")

    with logs("the budget was over with 8 sizes to tune; run again"):
        covered = cover(SPAN, H100, store, search, over)
    assert {point.m for point in covered.points} == {1, 512}
    assert stored.load(store.root, H100) == (covered,)


@pytest.mark.parametrize("tuned", [0, 1])
def test_range_needs_both_ends(store: Store, tuned: int) -> None:
    search = TwoConfigSearch(store)

    def limited(problem: Problem, until: float | None) -> Record:
        if len(search.asked) == tuned:
            raise BudgetError("the time was over")
        return search(problem, until)

    with pytest.raises(BudgetError, match="the time was over"):
        cover(SPAN, H100, store, limited, search)
    with pytest.raises(BudgetError, match="over before both ends"):
        cover(SPAN, H100, store, search, search, deadline=monotonic())


class ColdSearch(TwoConfigSearch):
    """A search whose cold times are the hot ones of the other configuration."""

    def __call__(self, problem: Problem, _until: float | None = None) -> Record:
        tuned = super().__call__(problem)
        swapped = [entry.measurement.time_us for entry in reversed(tuned.entries)]
        entries = tuple(
            replace(entry, measurement=replace(entry.measurement, cold_us=cold_us))
            for entry, cold_us in zip(tuned.entries, swapped, strict=True)
        )
        return self._store.save(replace(tuned, entries=entries))


def test_range_tuned_cold_is_beside_the_hot_one(store: Store) -> None:
    hot = cover_with(store, TwoConfigSearch(store))
    search = ColdSearch(store)
    cold = cover_with(store, search, objective=COLD)
    assert (hot.objective, cold.objective) == ("hot", "cold")
    assert set(stored.load(store.root, H100)) == {hot, cold}
    assert {point.m for point in cold.points} <= {*search.asked}  # hot records have no cold times


def test_cold_range_uses_cold_times_of_earlier_records(store: Store) -> None:
    cover_with(store, ColdSearch(store), objective=COLD)
    again = ColdSearch(store)
    cover_with(store, again, objective=COLD)
    assert again.asked == []


def test_cold_range_is_read_back() -> None:
    tuned = Range(H100, SPAN.problem, "m", (Segment(1, 512, 1),), "replayed", COLD)
    assert stored.loads(stored.line(tuned)) == tuned
    assert stored.path_of(Path(), tuned).name == "1-512x1024x1024-f32-nn.cold.replayed.json"


def test_report_of_a_cold_range_says_so() -> None:
    console = Console(width=80, file=StringIO(), color_system=None)
    console.print(range_table(tuned_range(objective=COLD)))
    assert isinstance(console.file, StringIO)
    first = console.file.getvalue().splitlines()[0].rstrip()
    assert first == "1..512x1024x1024:f32:nn on NVIDIA H100 80GB HBM3: measured, cold"


def test_range_of_earlier_versions_is_hot() -> None:
    tuned = Range(H100, SPAN.problem, "m", (Segment(1, 512, 1),))
    assert "objective" not in tuned.to_json()
    assert stored.loads(stored.line(tuned)).objective == "hot"


def test_recording_names_the_missing_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    with pytest.raises(NotFoundError, match="does not hold 63x4096x4096:f32:nn"):
        autotune.tune("63..64x4096x4096", device="replay:h100", trials=1)
