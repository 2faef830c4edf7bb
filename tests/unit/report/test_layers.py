"""Which linear layers gain from tuned kernels by the records, and the report about it."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from support.fake_runner import tiled
from support.sample_records import H100, entry, record

from autotune import settings
from autotune.problem import Problem
from autotune.records import Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.report import layers
from autotune.report.layers import (
    Layer,
    LayerRecords,
    QuantizedReport,
    QuantizedRow,
    Report,
    Row,
    compare_layer,
    layer_table,
    quantized_table,
)

LAYER = Layer(("up", "down"), 512, 256, "f32", bias=False)
BIASED = replace(LAYER, bias=True)
PLAIN = Problem(64, 512, 256, layout="nt")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store, beside no shipped records."""
    monkeypatch.setattr(settings, "shipped_dir", lambda: tmp_path / "shipped")
    return Store(tmp_path)


def save(
    store: Store, problem: Problem, ours: float, cublas: float | None, spread: float = 0.0
) -> None:
    best = replace(entry(16, ours, spread), config=tiled(16))
    measured = record(best, problem=problem, baseline_us=cublas)
    if cublas is not None and measured.baseline is not None:
        measured = replace(measured, baseline=replace(measured.baseline, spread_us=spread))
    store.save(measured)


def compare(store: Store, layer: Layer, *rows: int, min_gain: float = 0.0) -> tuple[Row, ...]:
    return compare_layer(layer, rows or None, LayerRecords.on(H100, store), min_gain)


def test_layer_with_a_faster_kernel_gains(store: Store) -> None:
    save(store, PLAIN, 100.0, 125.0)
    assert compare(store, LAYER, 64) == (Row(LAYER, 64, PLAIN, 100.0, 125.0, True, None),)


def test_gain_is_the_share_that_cublas_takes_longer() -> None:
    assert Row(LAYER, 64, PLAIN, 100.0, 125.0).gain == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("ours", "cublas", "spread", "why"),
    [(100.0, 90.0, 0.0, layers.FASTER), (100.0, 100.4, 5.0, layers.TIE),
     (100.0, 99.6, 5.0, layers.TIE), (100.0, None, 0.0, "cuBLAS was not timed"),
     (100.0, 104.0, 0.0, "gain below 5%")],
)  # fmt: skip
def test_layer_without_gain_is_kept_with_a_reason(
    store: Store, ours: float, cublas: float | None, spread: float, why: str
) -> None:
    save(store, PLAIN, ours, cublas, spread)
    (row,) = compare(store, LAYER, 64, min_gain=0.05)
    assert (row.replaced, row.why) == (False, why)


@pytest.mark.parametrize("rows", [(), (65,)], ids=["any", "another"])
def test_layer_without_a_record_is_kept(store: Store, rows: tuple[int, ...]) -> None:
    save(store, replace(PLAIN, layout="nn"), 100.0, 125.0)
    (row,) = compare(store, LAYER, *rows)
    assert (row.replaced, row.why, row.problem) == (False, layers.UNKNOWN, None)


def test_predicted_record_does_not_count(store: Store) -> None:
    best = replace(entry(16, 100.0), config=tiled(16))
    store.save(record(best, problem=PLAIN, evidence="predicted", baseline_us=125.0))
    assert [row.why for row in compare(store, LAYER, 64)] == [layers.UNKNOWN]


def test_layer_whose_cublas_is_wrong_is_replaced(store: Store) -> None:
    made = record(replace(entry(16, 100.0), config=tiled(16)), problem=PLAIN)
    wrong = replace(made.provenance, baseline_fault="wrong result for small integers")
    store.save(replace(made, provenance=wrong))
    assert compare(store, LAYER, 64) == (Row(LAYER, 64, PLAIN, 100.0, None, True, None),)


def test_gain_at_one_number_of_rows_is_enough(store: Store) -> None:
    save(store, PLAIN, 100.0, 125.0)
    save(store, replace(PLAIN, m=1), 10.0, 8.0)
    rows = compare(store, LAYER, 1, 64)
    assert [(row.m, row.replaced, row.why) for row in rows] == [
        (1, True, layers.FASTER),
        (64, True, None),
    ]


def test_without_rows_every_recorded_number_counts(store: Store) -> None:
    for m, problem in ((8, PLAIN), (64, PLAIN), (32, replace(PLAIN, n=511))):
        save(store, replace(problem, m=m), 100.0, 125.0)
    save(store, replace(PLAIN, m=16, compute="tf32"), 100.0, 125.0)
    assert [row.m for row in compare(store, LAYER)] == [8, 64]


def test_rows_in_a_range_are_compared_by_its_point(store: Store) -> None:
    short = replace(PLAIN, k=64)  # sums so short that one kernel is accurate enough for all rows
    save(store, short, 100.0, 125.0)
    tuned = Range(H100, short, "m", (Segment(33, 64, 64),))
    ranges.save(store.root, tuned)
    (row,) = compare(store, replace(LAYER, inputs=64), 40)
    assert (row.m, row.problem, row.replaced) == (40, short, True)


def test_layer_with_a_bias_uses_its_own_record_first(store: Store) -> None:
    save(store, PLAIN, 100.0, 90.0)
    save(store, replace(PLAIN, epilogue="bias"), 100.0, 125.0)
    assert [row.replaced for row in compare(store, BIASED, 64)] == [True]


def test_layer_with_a_bias_falls_back_to_no_bias(store: Store) -> None:
    save(store, PLAIN, 100.0, 125.0)
    assert [row.problem for row in compare(store, BIASED)] == [PLAIN]


def test_layer_without_a_bias_ignores_records_with_one(store: Store) -> None:
    save(store, replace(PLAIN, epilogue="bias"), 100.0, 125.0)
    assert [row.why for row in compare(store, LAYER)] == [layers.UNKNOWN]


def shown(*rows: Row) -> str:
    text = StringIO()
    Console(width=120, file=text).print(layer_table(Report((H100.name,), rows)))
    return text.getvalue()


GAINED = Row(LAYER, 64, PLAIN, 100.0, 125.0, True)
SLOWER = Row(LAYER, 1, replace(PLAIN, m=1), 10.0, 8.0, True, layers.FASTER)
KEPT = Row(replace(LAYER, names=("head",), compute="float64"), why="no kernel has this type")


def test_title_counts_layers() -> None:
    first = shown(GAINED, SLOWER, KEPT).splitlines()[0]
    assert first.rstrip() == f"2 of 3 linear layers replaced on {H100.name}"


@pytest.mark.parametrize(
    ("row", "cells"),
    [(GAINED, "2: up, ... 64 512 256 f32 100.0 us 125.0 us +25.0% replaced"),
     (SLOWER, "2: up, ... 1 512 256 f32 10.0 us 8.0 us -20.0% replaced, but cuBLAS serves this M"),
     (replace(GAINED, m=60),
      "2: up, ... 60 512 256 f32 100.0 us 125.0 us +25.0% replaced (times of M=64)"),
     (replace(GAINED, why=layers.TIE),
      "2: up, ... 64 512 256 f32 100.0 us 125.0 us +25.0% replaced, a tie"),
     (KEPT, "head 512 256 float64 kept: no kernel has this type")],
)  # fmt: skip
def test_line_says_whether_and_why_layers_are_kept(row: Row, cells: str) -> None:
    assert cells in [" ".join(line.split()) for line in shown(row).splitlines()]


def test_model_without_linear_layers_has_no_table() -> None:
    assert shown() == f"0 of 0 linear layers replaced on {H100.name}\n"


def test_layers_are_named_once() -> None:
    report = Report((H100.name,), (SLOWER, GAINED, KEPT))
    assert (report.replaced, report.kept) == (("up", "down"), ("head",))


QUANTISED = QuantizedRow("mlp.up", 14336, 4096, 16, 30.0, 15.0, 0.0321, replaced=True)
SLOW = QuantizedRow("mlp.down", 4096, 14336, 16, 30.0, 60.0, 0.03, why="gains less than 0%")
UNTIMED = QuantizedRow("head", 128, 64, replaced=True)


def quantized_lines(report: QuantizedReport) -> list[str]:
    console = Console(file=StringIO(), width=120)
    console.print(quantized_table(report))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined, no-any-return]


def test_each_layer_has_its_gain_and_error() -> None:
    title, _, *lines, _, _ = quantized_lines(
        QuantizedReport("f8", "row", (QUANTISED, SLOW, UNTIMED))
    )
    assert title.rstrip() == "2 of 3 linear layers quantised to f8, scale row"
    words = [" ".join(line.split()) for line in lines]
    assert words[0] == "mlp.up 16 14336 4096 30.0 us 15.0 us +100.0% 3.21% quantised"
    assert words[1].endswith("-50.0% 3.00% kept: gains less than 0%")
    assert words[2] == "head 128 64 quantised"


def test_report_names_quantised_and_kept_layers() -> None:
    report = QuantizedReport("f8", "row", (QUANTISED, SLOW, UNTIMED))
    assert (report.replaced, report.kept) == (("mlp.up", "head"), ("mlp.down",))


def test_model_without_quantised_layers_has_a_title_only() -> None:
    assert len(quantized_lines(QuantizedReport("i8", "row", ()))) == 1
