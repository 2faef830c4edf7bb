"""The data of the pictures: computed from a record, its trials and its problem."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from support.command_line import own_machine
from support.fake_runner import ORIGIN, UNKNOWN, compiled
from support.sample_records import H100
from support.sample_subject import (
    PROVENANCE,
    SHAPE,
    TRIALS,
    by_hand,
    entry,
    only,
    searched,
    timed,
    user_kernel,
)
from support.sample_user_kernels import LEGAL, KernelRunner, tunable
from support.swept_page import analysis, swept_subject

from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD, HOT
from autotune.model.cost import fitted
from autotune.occupancy import occupancy as resident_blocks
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.records.kernel_record import NOT_VERIFIED
from autotune.report import local
from autotune.report.explanation import why_it_won
from autotune.report.pages import occupancy, parameters, roofline, search
from autotune.report.pages.record import headline, leaders, roofline_share
from autotune.report.trials import subject_of
from autotune.tuning.loop import Search, tune


def test_best_so_far_never_rises() -> None:
    steps = search.search_steps(by_hand())
    assert [step.time_us for step in steps] == [20.0, 16.0, 12.0, 10.0, None, 11.0]
    assert [step.best_us for step in steps] == [20.0, 16.0, 12.0, 10.0, 10.0, 10.0]
    assert [step.stage for step in steps] == [None] * 4 + ["compile", None]
    assert search.failures(by_hand()) == {"compile": 1}


def test_search_that_only_failed_has_no_best_time() -> None:
    subject = by_hand()
    failed = replace(subject, trials=subject.trials[4:5])
    assert [step.best_us for step in search.search_steps(failed)] == [None]


def test_stop_sentence_names_trials_and_the_last() -> None:
    end = "The search stopped after 6 trials, the last 5 s after the first began."
    assert search.stop_sentence(by_hand()) == end


def test_headline_has_the_record_s_numbers() -> None:
    top = headline(by_hand(), UNKNOWN)
    rate = 2 * 256**3 / 10e-6
    assert (top.time_us, top.spread_us, top.cold_us) == (10.0, 0.1, 11.0)
    assert top.tflops == pytest.approx(rate / 1e12)
    assert top.peak_share == pytest.approx(rate / H100.peak_fp32)
    least = max(2 * 256**3 / H100.peak_fp32, 3 * 256 * 256 * 4 / H100.memory_bandwidth)
    assert top.roofline_share == pytest.approx(2 * 256**3 / H100.peak_fp32 / 10e-6)
    assert top.cold_roofline_share == pytest.approx(least / 11e-6)
    assert top.over_hot == pytest.approx(0.9)
    assert top.over_cold == pytest.approx(15 / 11)
    assert top.date == "2026-11-21T12:00:00Z"


def test_winner_by_a_margin_is_said_to_be_faster() -> None:
    entries = by_hand().record.entries
    assert why_it_won(entries, entries[0]) == (
        "It is 10.00% faster than the next of 2, more than the 0.5% of a tie."
    )


def test_tied_winner_is_said_to_take_the_fewest_registers() -> None:
    fast, lean = entry(timed(16, 1, 10.0)), entry(timed(16, 0, 10.03))
    record = replace(by_hand().record, entries=(fast, lean))
    assert record.best == lean
    assert why_it_won(record.entries, record.best) == (
        "Tied with 1 within 0.30%, and up to 0.5% is a tie; "
        "it takes the fewest registers (8,192 a block, the next 8,448)."
    )


@pytest.mark.parametrize(
    ("shared", "reason"),
    [
        (1024, "it takes the least shared memory (1,024 bytes a block, the next 2,048)"),
        (2048, "it takes no more than any of them, and comes first in the order of their texts."),
    ],
)
def test_ties_in_registers_go_by_shared_memory(shared: int, reason: str) -> None:
    first, second = entry(timed(16, 0, 10.0)), entry(timed(16, 1, 10.01))
    block = replace(first.resources, shared=shared)
    entries = (replace(first, resources=block), replace(second, resources=first.resources))
    record = replace(by_hand().record, entries=entries)
    assert record.best == entries[0]
    assert reason in why_it_won(entries, record.best)


def test_only_entry_needs_no_comparison() -> None:
    entries = by_hand().record.entries[:1]
    assert why_it_won(entries, entries[0]) == "It is the only configuration of the record."


@pytest.mark.parametrize(
    ("zone", "shown"), [("UTC0", "11-21 23:30+00:00"), ("XST-5:45", "11-22 05:15+05:45")]
)
def test_dates_are_local_and_state_their_zone(
    zone: str, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", zone)
        time.tzset()
        assert local("2026-11-21T23:30:09Z") == f"2026-{shown}"
        page = analysis(by_hand()).page()
        assert f"Saved {local(PROVENANCE.date)}." in page
        assert " ago" not in page.partition("<script")[0]
    time.tzset()


def test_malformed_date_is_shown_as_it_is() -> None:
    assert local("yesterday") == "yesterday"


def test_roofline_places_tiles_by_the_bytes_they_load() -> None:
    data = roofline.roofline(by_hand())
    assert data is not None
    assert data.roofs.dram == H100.memory_bandwidth
    assert data.roofs.l2 == H100.memory_bandwidth * fitted().l2
    assert data.roofs.peak == H100.peak_fp32
    assert [point.flop_per_byte for point in data.trials] == [2, 2, 4, 4, 8]
    assert [point.flop_per_byte for point in data.textbook] == [0.25, 2, 4, 8]
    assert data.textbook[1].flops == 2 * H100.memory_bandwidth
    assert data.once == pytest.approx(2 * 256**3 / (3 * 4 * 256**2))
    assert data.winner is not None
    assert data.winner.flops == pytest.approx(SHAPE.speed(10.0))


def test_parameters_cost_what_their_best_times_say() -> None:
    width, specialized = parameters.parameter_costs(by_hand())
    assert (width.name, specialized.name) == ("tile_width", "specialized")
    assert [(value.value, value.best_us, value.trials) for value in width.values] == [
        (8, 16.0, 2),
        (16, 10.0, 2),
        (32, 11.0, 1),
    ]
    assert [value.loss for value in width.values] == pytest.approx([0.6, 0.0, 0.1])
    assert width.range == pytest.approx(0.6)
    assert specialized.range == pytest.approx(0.1)


def test_values_are_ordered_numbers_before_words() -> None:
    assert parameters.ordered({"b", 10, "a", 9}) == (9, 10, "a", "b")


def test_occupancy_curves_are_the_calculator_s() -> None:
    data = occupancy.residency(by_hand())
    assert data is not None
    for curve in data.curves:
        assert curve.winner in curve.values
        for value, share in zip(curve.values, curve.occupancy, strict=True):
            taken = {"threads": 256, "registers": 33, "shared": 2048} | {curve.resource: value}
            assert share == resident_blocks(H100, **taken).occupancy


def test_device_without_occupancy_rules_has_no_curves() -> None:
    subject = by_hand()
    device = replace(H100, compute_capability=(99, 9))
    assert (
        occupancy.residency(replace(subject, record=replace(subject.record, device=device))) is None
    )


def test_table_has_a_row_for_each_trial() -> None:
    table = analysis(by_hand()).trials
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, row, strict=True)) for row in table.rows]
    assert [row["time_us"] for row in rows] == [20.0, 16.0, 12.0, 10.0, None, 11.0]
    assert (rows[3]["tile_width"], rows[3]["registers"], rows[3]["cold_us"]) == (16, 33, 11.0)
    assert rows[4]["failure"] == "compile: error: 3 < 2 & more"
    kinds = {column.name: column.kind for column in table.columns}
    assert (kinds["tile_width"], kinds["family"]) == ("number", "text")


def test_leaders_name_what_they_differ_in() -> None:
    first, second = leaders(by_hand())
    assert (first.differs, first.loss) == ("the winner", 0.0)
    assert second.differs == "tile_width=32 specialized=0"
    assert second.loss == pytest.approx(0.1)


def test_log_gives_the_trials_of_the_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = own_machine(monkeypatch, tmp_path)
    record = searched(cache)
    before = {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}
    subject = subject_of(record, cache)
    assert (subject.note, len(subject.trials)) == ("", TRIALS)
    times = [row.seconds for row in subject.trials]
    assert times == sorted(seconds for seconds in times if seconds is not None)
    assert record.best.config in {row.trial.config for row in subject.trials}
    assert before == {path: path.read_bytes() for path in cache.rglob("*") if path.is_file()}


def test_user_kernel_has_its_trials_and_no_roofline(tmp_path: Path) -> None:
    store, tuned = Store(tmp_path), tunable()
    record = tune(tuned, KernelRunner(), store, Search(), compile=compiled, origin=ORIGIN)
    data = analysis(subject_of(record, tmp_path))
    assert (data.source, len(data.steps)) == ("log", LEGAL)
    assert data.roofline is None
    assert {cost.name for cost in data.costs} == {"EACH", "THREADS"}
    assert data.headline.tflops is data.headline.roofline_share is data.headline.over_hot is None
    assert data.headline.config == "saxpy:THREADS=256,EACH=1"


def test_trials_of_other_sources_do_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = own_machine(monkeypatch, tmp_path)
    record = searched(cache)
    other = replace(record, provenance=replace(record.provenance, source="0ld"))
    subject = subject_of(other, cache)
    assert subject.trials == ()
    assert "no trials of the record's kernel sources" in subject.note


def test_record_without_its_log_stands_for_itself(tmp_path: Path) -> None:
    subject = subject_of(by_hand().record, tmp_path)
    assert subject.trials == ()
    assert len(subject.entries) == 2
    assert subject.note == (
        "its log of trials is not in this cache; the record has its best 2 entries of 6 trials only"
    )


def test_record_alone_draws_no_search(tmp_path: Path) -> None:
    record = by_hand().record
    unclocked = replace(record, provenance=replace(record.provenance, seconds=0.0))
    data = analysis(subject_of(unclocked, tmp_path))
    assert (data.steps, data.costs, data.trials.rows) == ((), (), ())
    assert data.stop == "The search made 6 trials; only the best are in the record."
    assert data.summary.endswith("best 2 entries")
    drawn = {"roofline", "occupancy-threads", "occupancy-registers", "occupancy-shared"}
    assert {*data.figures()} == drawn
    page = data.page()
    assert "the record has its best 2 entries of 6 trials only" in page.lower()
    assert "table-trials" not in page.partition("<script")[0]


@pytest.mark.parametrize("size", [256, 1024, 4096])
def test_no_share_of_the_roofline_exceeds_its_bound(size: int) -> None:
    """Hot times that the bandwidth of device memory forbids: L2 of 50 MB serves the matrices."""
    record = by_hand().record
    assert isinstance(record, Record)
    problem = Problem(16, size, size, "bf16", "nt")
    once = 1e6 * problem.bytes / H100.memory_bandwidth
    timed = replace(record.best.measurement, time_us=once / 1.25, cold_us=once * 2)
    best = replace(record.best, measurement=timed)
    small = replace(record, problem=problem, entries=(best,))
    assert roofline_share(small, best, HOT) == pytest.approx(
        1.25 * problem.flops / H100.peak("bf16") / once * 1e6
    )
    assert roofline_share(small, best, COLD) == pytest.approx(0.5)


def test_broken_lines_of_a_log_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = own_machine(monkeypatch, tmp_path)
    record = searched(cache)
    (log,) = cache.glob("studies/*/*.jsonl")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([*lines[:3], b"broken\n", *lines[3:]]))
    subject = subject_of(record, cache)
    assert len(subject.trials) == TRIALS
    assert subject.note == "1 broken lines of the trial log were skipped"


def test_log_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = own_machine(monkeypatch, tmp_path)
    record = searched(cache)
    (log,) = cache.glob("studies/*/*.jsonl")
    log.unlink()
    log.mkdir()
    subject = subject_of(record, cache)
    assert subject.trials == ()
    assert f"{log}: cannot be read: Is a directory" in subject.note


@pytest.mark.parametrize("kind", ["log", "recording", "one", "kernel"])
def test_whole_analysis_is_json(kind: str, tmp_path: Path) -> None:
    subjects = {
        "log": by_hand(),
        "recording": swept_subject(),
        "one": subject_of(one_entry(), tmp_path),
        "kernel": subject_of(user_kernel(), tmp_path),
    }
    data = analysis(subjects[kind])
    text = json.dumps(asdict(data), allow_nan=False)
    assert json.loads(text)["headline"]["title"] == subjects[kind].record.title
    assert data.summary.isascii()
    assert (data.roofline is None) == (kind == "kernel")


def one_entry() -> Record:
    record = by_hand().record
    assert isinstance(record, Record)
    return only(record, 1)


def test_page_of_an_unverified_kernel_says_so(tmp_path: Path) -> None:
    record = replace(user_kernel(), verified=NOT_VERIFIED)
    shown = [analysis(subject_of(made, tmp_path)).page() for made in (user_kernel(), record)]
    assert ["not verified" in page for page in shown] == [False, True]


def test_page_states_the_result_of_cublas(tmp_path: Path) -> None:
    record = one_entry()
    baseline = Measurement(9.0, library="13.1.0")
    wrong = replace(record.provenance, baseline_fault="largest error 1")
    made = replace(record, baseline=baseline), replace(record, baseline=None, provenance=wrong)
    shown = [analysis(subject_of(each, tmp_path)).page() for each in made]
    assert "; verified with cuBLAS 13.1.0" in shown[0]
    assert "wrong: largest error 1" in shown[1]
