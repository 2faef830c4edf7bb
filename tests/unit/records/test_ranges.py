"""Ranges of sizes: their text, their file, and the points that are tuned."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from rich.console import Console
from support.fake_runner import tiled
from support.sample_records import H100, entry, record

import autotune
from autotune.api import ranges
from autotune.api.ranges import cover
from autotune.device import Device
from autotune.errors import BudgetError, NotFoundError, ProblemError, UsageError
from autotune.families.config import Config
from autotune.measure.objective import COLD
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Record, Store
from autotune.records import ranges as stored
from autotune.records.ranges import Range, Segment
from autotune.report.listing import range_table
from autotune.tuning.options import Search

TOP = Problem(512, 1024, 1024)

TWO = (Segment(1, 16, 16), Segment(17, 512, 512))


def tuned_range(**changed: Any) -> Range:
    fields: dict[str, Any] = {"dimension": "m", "segments": TWO, "loss": 0.03}
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
        ({"loss": -0.1}, "loss is -0.1"),
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
    stored.save(tmp_path, tuned_range(loss=0.01))
    assert [tuned.loss for tuned in stored.load(tmp_path, H100)] == [0.01]


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
        {"loss": "little"},
        {"loss": True},
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
    with pytest.warns(UserWarning, match=f"{path.name}: skipped"):
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


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves two legal configurations: one for small sizes, one for large sizes."""
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space((tiled(8), tiled(32))))


SPAN = Span.parse("1..512x1024x1024")


@pytest.mark.usefixtures("two")
def test_ends_are_tuned_first(store: Store) -> None:
    search = TwoConfigSearch(store)
    cover(SPAN, H100, store, search, loss=10.0)
    assert search.asked == [1, 512]


@pytest.mark.usefixtures("two")
def test_points_are_added_until_the_loss_is_reached(store: Store) -> None:
    search = TwoConfigSearch(store)
    covered = cover(SPAN, H100, store, search, loss=0.05)
    assert covered.loss <= 0.05
    assert {point.m for point in covered.points} <= {*search.asked}
    assert len(search.asked) < len(SPAN.probes)


@pytest.mark.usefixtures("two")
def test_points_are_checked_by_the_clusters_of_their_card(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rejection(
        config: Config, problem: Problem, device: Device, *, recorded: bool
    ) -> str | None:
        del config, problem, recorded
        return None if device.clusters == (66, 30, 15) else "other clusters"

    monkeypatch.setattr(space, "rejection", rejection)
    search = TwoConfigSearch(store, replace(H100, clusters=(66, 30, 15)))
    assert cover(SPAN, H100, store, search, loss=0.05).loss <= 0.05
    assert len(search.asked) < len(SPAN.probes)


@pytest.mark.usefixtures("two")
def test_range_is_recorded(store: Store) -> None:
    covered = cover(SPAN, H100, store, TwoConfigSearch(store), loss=0.05)
    assert stored.load(store.root, H100) == (covered,)
    assert (covered.low, covered.high, covered.evidence) == (1, 512, "measured")


@pytest.mark.usefixtures("two")
def test_recorded_points_are_not_tuned_again(store: Store) -> None:
    cover(SPAN, H100, store, TwoConfigSearch(store), loss=0.05)
    again = TwoConfigSearch(store)
    cover(SPAN, H100, store, again, loss=0.05)
    assert again.asked == []


@pytest.mark.usefixtures("two")
def test_interrupt_loses_no_point(store: Store) -> None:
    search = TwoConfigSearch(store)

    def pressed(problem: Problem, until: float | None) -> Record:
        if search.asked:
            raise KeyboardInterrupt
        return search(problem, until)

    with pytest.raises(KeyboardInterrupt):
        cover(SPAN, H100, store, pressed)
    assert store.load(H100, SPAN.at(1)) is not None


@pytest.mark.usefixtures("two")
def test_range_of_one_size_is_one_point(store: Store) -> None:
    covered = cover(Span.parse("64..64x64x64"), H100, store, TwoConfigSearch(store))
    assert (covered.segments, covered.loss) == ((Segment(64, 64, 64),), 0.0)


@pytest.mark.usefixtures("two")
def test_searches_of_a_range_share_its_time(store: Store) -> None:
    search, turns = TwoConfigSearch(store), list[float]()

    def timed(problem: Problem, until: float | None) -> Record:
        assert until is not None
        turns.append(until)
        return search(problem)

    deadline = monotonic() + 1000
    cover(SPAN, H100, store, timed, loss=0.05, race=timed, deadline=deadline)
    assert len(turns) > 2
    # Half of the time is for the ends, a quarter for each.
    assert turns[0] == pytest.approx(deadline - 750, abs=20)
    assert turns[1] == pytest.approx(deadline - 500, abs=20)
    assert all(turn < deadline for turn in turns)


def half(span: Span, _: Device, tuned: dict[int, Record], *__: Any) -> dict[int, dict[int, float]]:
    """An expected loss of 50 % at every size that is not tuned."""
    return {probe: dict.fromkeys(tuned, 0.5 * (probe not in tuned)) for probe in span.probes}


@pytest.mark.usefixtures("two")
def test_range_whose_time_is_over_is_recorded_as_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranges, "expected", half)
    search = TwoConfigSearch(store)
    with pytest.warns(UserWarning, match=r"was over at an expected loss of 50.0%, above 0.0%"):
        covered = cover(SPAN, H100, store, search, loss=1e-6, deadline=monotonic())
    assert search.asked == [1, 512]
    assert stored.load(store.root, H100) == (covered,)


@pytest.mark.usefixtures("two")
@pytest.mark.parametrize("tuned", [0, 1, 2])
def test_range_needs_both_ends(store: Store, tuned: int) -> None:
    search = TwoConfigSearch(store)

    def limited(problem: Problem, until: float | None) -> Record:
        if len(search.asked) == tuned:
            raise BudgetError("the time was over")
        return search(problem, until)

    if tuned == 2:
        assert cover(SPAN, H100, store, limited, loss=1e-6).points == (SPAN.at(1), SPAN.at(512))
        return
    with pytest.raises(BudgetError, match="the time was over"):
        cover(SPAN, H100, store, limited)


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


@pytest.mark.usefixtures("two")
def test_range_tuned_cold_is_beside_the_hot_one(store: Store) -> None:
    hot = cover(SPAN, H100, store, TwoConfigSearch(store), loss=0.05)
    search = ColdSearch(store)
    cold = cover(SPAN, H100, store, search, 0.05, COLD)
    assert (hot.objective, cold.objective) == ("hot", "cold")
    assert set(stored.load(store.root, H100)) == {hot, cold}
    assert {point.m for point in cold.points} <= {*search.asked}  # hot records have no cold times


@pytest.mark.usefixtures("two")
def test_cold_range_uses_cold_times_of_earlier_records(store: Store) -> None:
    cover(SPAN, H100, store, ColdSearch(store), 0.05, COLD)
    again = ColdSearch(store)
    cover(SPAN, H100, store, again, 0.05, COLD)
    assert again.asked == []


def test_cold_range_is_read_back() -> None:
    tuned = Range(H100, SPAN.problem, "m", (Segment(1, 512, 1),), 0.1, "replayed", COLD)
    assert stored.loads(stored.line(tuned)) == tuned
    assert stored.path_of(Path(), tuned).name == "1-512x1024x1024-f32-nn.cold.replayed.json"


def test_report_of_a_cold_range_says_so() -> None:
    console = Console(width=80, file=StringIO(), color_system=None)
    console.print(range_table(tuned_range(objective=COLD)))
    assert isinstance(console.file, StringIO)
    first = console.file.getvalue().splitlines()[0].rstrip()
    assert first == "1..512x1024x1024:f32:nn on NVIDIA H100 80GB HBM3: measured, cold"


def test_range_of_earlier_versions_is_hot() -> None:
    tuned = Range(H100, SPAN.problem, "m", (Segment(1, 512, 1),), 0.1)
    assert "objective" not in tuned.to_json()
    assert stored.loads(stored.line(tuned)).objective == "hot"


@pytest.mark.parametrize("loss", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_loss_is_refused(loss: float) -> None:
    with pytest.raises(UsageError, match="give more than 0"):
        ranges.tune(SPAN, Search(), device="h100", loss=loss)


def test_recording_names_the_missing_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    with pytest.raises(NotFoundError, match="does not hold 63x4096x4096:f32:nn"):
        autotune.tune("63..64x4096x4096", device="replay:h100", trials=1)
