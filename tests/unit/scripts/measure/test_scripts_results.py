"""The rows of a suite's result file and their summary."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
import results
from results import Ceilings, Finals, Row, Sheet
from rich.console import Console
from support.paths import ROOT
from support.sample_records import H100, SQUARE, entry, record

from autotune.measure.measurement import Failure, Measurement
from autotune.measure.vendor_check import VendorCheck, VendorChecks
from autotune.measure.verify import Passed
from autotune.problem import Problem
from autotune.report.cache import vendor_json

CEILINGS = Ceilings(66.0e12, 2996e9)
OURS = Measurement(2000.0, 1.0, 20, cold_us=2100.0, relative_error=2e-7)
CUBLAS = Measurement(2600.0, 2.0, 20, cold_us=2625.0, relative_error=1e-7)
CUBLASLT = {
    "cuBLASLt 1": Measurement(2500.0, cold_us=2520.0),
    "cuBLASLt 2": Measurement(2400.0, cold_us=2730.0),
}


def row(problem: Problem = SQUARE, finals: Finals | None = None) -> Row:
    last = finals or Finals(OURS, CUBLAS, CUBLASLT)
    return results.row(problem, record(problem=problem), last, 21.5, CEILINGS)


def fast(ratio: float, layout: str = "nn", m: int = 64) -> Row:
    """A row of a kernel that is `ratio` times as fast as cuBLAS, at 100 us."""
    ours = Measurement(100.0 / ratio, cold_us=50.0)
    vendor = Measurement(100.0, cold_us=100.0)
    return row(Problem(m, 64, 64, layout=layout), Finals(ours, vendor))


def test_ratios_are_cublas_time_over_ours() -> None:
    shape_row = row()
    assert (shape_row["ratio"], shape_row["cold"]["ratio"]) == (1.3, 1.25)


def test_cublaslt_uses_its_best_hot_and_cold_results() -> None:
    shape_row = row()
    assert (shape_row["ratio_lt"], shape_row["cold"]["ratio_lt"]) == (1.2, 1.2)
    assert (shape_row["cublaslt_us"], shape_row["cold"]["cublaslt_us"]) == (2400.0, 2520.0)


def test_cold_ratio_is_of_the_cold_winner() -> None:
    cold = row(finals=Finals(OURS, CUBLAS, cold=Measurement(2050.0, cold_us=1750.0)))["cold"]
    assert (cold["ours_us"], cold["hot_winner_us"], cold["ratio"]) == (1750.0, 2100.0, 1.5)
    assert cold["config"] == str(record().best.config)


def test_row_has_the_relative_errors() -> None:
    assert (row()["error"], row()["reference_error"]) == (2e-7, 1e-7)


def test_square_roofline_is_compute_bound() -> None:
    assert row()["roofline_share"] == pytest.approx(2 * 4096**3 / 66.0e12 / 2000e-6)


def test_thin_roofline_is_memory_bound() -> None:
    thin = row(Problem(1, 4096, 4096), Finals(Measurement(40.0)))
    assert thin["roofline_share"] == pytest.approx(4 * (4096**2 + 2 * 4096) / 2996e9 / 40e-6)


def test_16_bit_roofline_counts_two_bytes() -> None:
    thin = row(Problem(1, 4096, 4096, "bf16"), Finals(Measurement(40.0)))
    assert thin["roofline_share"] == pytest.approx(2 * (4096**2 + 2 * 4096) / 2996e9 / 40e-6)


def test_baseline_of_tf32x3_is_fp32() -> None:
    vendors = [
        row(replace(SQUARE, compute=compute))["vendor"] for compute in ("tf32", "tf32x3", "f16")
    ]
    assert vendors == ["tf32", "f32", "f16"]


def test_untimed_values_are_null() -> None:
    shape_row = row(finals=Finals(OURS))
    assert (shape_row["ratio"], shape_row["ratio_lt"], shape_row["reference_error"]) == (
        None,
        None,
        None,
    )


def test_row_survives_json_and_names_its_problem() -> None:
    problem = Problem(3, 4, 5, layout="tn")
    assert results.problem_of(json.loads(json.dumps(row(problem)))) == problem


def test_row_names_the_type_of_c() -> None:
    problem = Problem(3, 4, 5, "bf16", output="f32")
    assert results.problem_of(row(problem)) == problem


def test_row_of_an_epilogue_or_a_batch_says_so() -> None:
    problem = Problem.parse("37x53x71:bf16:batch=3:bias_relu")
    made = row(problem, Finals(OURS, triton=Measurement(3 * OURS.time_us)))
    assert (results.problem_of(made), made["ratio_triton"]) == (problem, 3.0)
    (label,) = results.table([made]).columns[0].cells
    assert label == "37x53x71 batch=3 bias_relu"


def test_row_of_8_bits_names_scales_and_padding() -> None:
    problem = Problem.parse("37x53x71:f8e5:nt:scale=row:fast:e5m2=b:out=f16")
    made = row(problem, Finals(OURS, triton=Measurement(3 * OURS.time_us)))
    assert results.problem_of(json.loads(json.dumps(made))) == problem
    assert (made["padded"], made["ratio_triton"]) == (True, 3.0)
    assert row(Problem(64, 64, 64, "f8", "nt"))["padded"] is False
    assert "padded" not in row()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H100 80GB HBM3", CEILINGS),
        ("NVIDIA H200", Ceilings(66.0e12, 4.3e12)),
        ("NVIDIA H100 PCIe", Ceilings(H100.peak_fp32, H100.memory_bandwidth)),
    ],
)
def test_measured_ceilings_are_preferred(name: str, expected: Ceilings) -> None:
    assert results.ceilings(replace(H100, name=name)) == expected


@pytest.mark.parametrize("compute", ["tf32", "tf32x3", "bf16"])
def test_tensor_core_ceilings_are_peak_and_measured_copy(compute: str) -> None:
    assert results.ceilings(H100, compute) == Ceilings(H100.peak(compute), 2996e9)


def test_summary_has_the_worst_shape_and_wins() -> None:
    summary = results.summary([fast(2.0), fast(1.5, m=65)])
    assert (summary["worst_shape"], summary["families"]) == ("65x64x64", {"tiled": 2})


def test_suite_of_the_documents_is_read() -> None:
    path = ROOT / "docs" / "results" / "h100" / "suite-f32.json"
    rows = json.loads(path.read_text())["rows"]
    assert {results.problem_of(row).compute for row in rows} == {"f32"}
    assert results.summary(rows)["families"].keys() <= {"simt", "gemv"}
    assert results.table(rows).row_count == len(rows) + 2


def test_summary_has_geometric_mean_and_worst() -> None:
    summary = results.summary([fast(1.0), fast(4.0)])
    assert (summary["geomean"], summary["worst"]) == (pytest.approx(2.0), pytest.approx(1.0))
    assert summary["cold"] == {"geomean": pytest.approx(2.0), "worst": 2.0}
    assert summary["cublaslt"]["geomean"] is None


def test_summary_has_the_largest_error_ratio() -> None:
    worse = row(finals=Finals(replace(OURS, relative_error=5e-7), CUBLAS))
    assert results.summary([row(), worse])["largest_error_ratio"] == pytest.approx(5.0)


def test_layouts_are_compared_with_nn_of_the_same_shape() -> None:
    rows = [fast(2.0), fast(1.0, "nt"), fast(2.0, "tn"), fast(4.0, "tt"), fast(8.0, "nt", m=65)]
    assert results.layouts(rows) == [{"shape": [64, 64, 64], "nt": 0.5, "tn": 1.0, "tt": 2.0}]


def sheet(path: Path, *, device: str = "H100", source: str = "5e1f") -> Sheet:
    return Sheet(path, device, source, "abc", CEILINGS)


def test_sheet_resumes_from_its_file(tmp_path: Path) -> None:
    first = sheet(tmp_path / "new" / "out.json")
    first.add(SQUARE, record(entry(16, 900.0)), row())
    again = sheet(first.path)
    again.resume()
    assert again.rows == first.rows


@pytest.mark.parametrize("origin", [{"device": "H200"}, {"source": "1234"}])
def test_sheet_ignores_rows_of_another_origin(tmp_path: Path, origin: dict[str, str]) -> None:
    first = sheet(tmp_path / "out.json")
    first.add(SQUARE, record(), row())
    again = sheet(first.path, **origin)
    again.resume()
    assert not again.rows


def test_file_has_its_provenance(tmp_path: Path) -> None:
    suite_sheet = sheet(tmp_path / "out.json")
    suite_sheet.add(SQUARE, record(), row())
    written = json.loads(suite_sheet.path.read_text())
    assert {name: written[name] for name in ("driver", "toolkit", "commit", "source", "date")} == {
        "driver": "13.0",
        "toolkit": "NVRTC 13.0",
        "commit": "abc",
        "source": "5e1f",
        "date": "2026-11-21T12:00:00Z",
    }
    assert (written["geomean"], written["ceilings"]["flops"]) == (pytest.approx(1.3), 66.0e12)


def test_tables_show_every_row() -> None:
    rows = [fast(2.0, layout) for layout in ("nn", "nt", "tn", "tt")]
    assert results.table(rows).row_count == 4 + 2
    assert results.layout_table(rows).row_count == 1


def test_table_fits_110_columns() -> None:
    slow = Finals(replace(OURS, time_us=123456.78), replace(CUBLAS, time_us=123456.78), CUBLASLT)
    console = Console(file=StringIO(), width=110)
    console.print(results.table([row(Problem(100000, 32, 1000000, layout="tn"), slow)]))
    assert isinstance(console.file, StringIO)
    assert "…" not in console.file.getvalue()


def test_caption_names_each_card_with_dates_and_cublas(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    made = (
        ("NVIDIA H100", "24", "13.10.0"),
        ("NVIDIA H100", "22", "13.1.0"),
        ("NVIDIA H200", "23", ""),
    )
    for number, (device, day, cublas) in enumerate(made):
        fields = results.provenance(device, "13.0", "", cublas=cublas, date=f"2026-11-{day}T12:00")
        (folder / f"suite-{number}.json").write_text(json.dumps(fields))
    monkeypatch.setattr(results, "ROOT", tmp_path)
    before = "*yesterday's.* <!-- suite-*.json -->\n*By hand.* <!-- no file -->\n"
    assert results.rewritten(before) == (
        "*NVIDIA H100, 2026-11-22 to 2026-11-24, cuBLAS 13.1.0 and 13.10.0; NVIDIA H200, "
        "2026-11-23, cuBLAS not recorded.* <!-- suite-*.json -->\n*By hand.* <!-- no file -->\n"
    )
    with pytest.raises(FileNotFoundError, match="no such file"):
        results.caption(["none.json"])


def test_picture_of_suites_is_described_by_their_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "docs" / "results"
    folder.mkdir(parents=True)
    for card, mean in (("H100", 1.314), ("H200", 0.987)):
        fields = results.provenance(card, "13.0", "", cublas="13.1.0", date="2026-11-22T12:00")
        suite = {**fields, "geomean": mean, "rows": [{"compute": "f32"}] * 27}
        (folder / f"{card}-f32.json").write_text(json.dumps(suite))
    monkeypatch.setattr(results, "ROOT", tmp_path)
    picture = "![Speed against cuBLAS{}](pictures/suite.svg)\n\n"
    caption = (
        "*H100, 2026-11-22, cuBLAS 13.1.0; H200, 2026-11-22, cuBLAS 13.1.0.* <!-- H*.json -->\n"
    )
    means = " on 27 shapes, geometric means on H100 and H200: f32 1.31 and 0.99"
    assert results.rewritten(picture.format(": old") + caption) == picture.format(means) + caption


def suite_file(path: Path, rows: list[Row], cublas: str = "13.10.0") -> None:
    made = results.provenance("H100", "13.0", "", cublas=cublas, date="2026-11-26T12:00")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**made, "rows": rows, **results.summary(rows)}))


def table_of_files(kind: str) -> list[str]:
    """The lines that the command writes for all suites, its caption first."""
    text = f"before\n<!-- {kind}: suite-*.json -->\nold\n<!-- end -->\nafter\n"
    written = results.rewritten(text)
    assert results.rewritten(written) == written
    lines = written.splitlines()
    frame = "before", f"<!-- {kind}: suite-*.json -->", "", "", "<!-- end -->", "after"
    assert (*lines[:3], *lines[-3:]) == frame
    return lines[3:-3]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    return tmp_path / "docs" / "results"


def test_table_of_suites_has_means_and_worst_shapes(folder: Path) -> None:
    slow = row(Problem(64, 32, 64), Finals(replace(OURS, time_us=2700.0), CUBLAS, CUBLASLT))
    suite_file(folder / "suite-f32.json", [row(), slow])
    assert table_of_files("suites") == [
        "*H100, 2026-11-26, cuBLAS 13.10.0.* <!-- suite-*.json -->",
        "",
        "| precision | cuBLAS in | hot | cold | hot, over cuBLASLt's best | worst of these "
        "| shapes we match or beat | worst shape |",
        "|---|---|---|---|---|---|---|---|",
        "| `f32` | `f32` | **1.12** | 1.25 | 1.03 | 0.89 at 64 x 32 x 64 | 1 of 2 "
        "| 0.96 at 64 x 32 x 64 |",
    ]


def test_table_of_8_bits_has_the_unpadded_shapes(folder: Path) -> None:
    finals = Finals(replace(OURS, time_us=1300.0), CUBLAS)
    shapes = ("64x64x64", "37x53x71")
    rows = [row(Problem.parse(f"{shape}:f8:nt:scale=row"), finals) for shape in shapes]
    rows[1]["ratio"] = 0.5
    suite_file(folder / "suite-f8.json", rows)
    *_, head, _, line = table_of_files("suites")
    assert "| hot, unpadded shapes | worst of these |" in head
    assert line.startswith("| `f8:nt:scale=row` | `f8` | **1.00** |")
    assert "| 2.00 (1) | 2.00 at 64 x 64 x 64 |" in line
    assert line.endswith("| 0.50 at 37 x 53 x 71 |")


def test_table_of_shapes_has_a_row_a_shape(folder: Path) -> None:
    suite_file(folder / "suite-f32.json", [row(), fast(2.0)])
    *_, first, second = table_of_files("shapes")
    cells = (
        "4096 x 4096 x 4096",
        *("2000.0", "2600.0", "**1.30**", "1.20", "1.25", "68.7", "2.00"),
        *(str(row()["trials"]), f"`{results.family_of(row())}`"),
    )
    assert first == f"| {' | '.join(cells)} |"
    assert second.startswith("| 64 x 64 x 64 | 50.00 | 100.0 | **2.00** |  | 2.00 |")


@pytest.mark.parametrize(("slower_us", "expected"), [(-5.0, True), (2.0, True), (2.1, False)])
def test_shape_within_the_spread_is_matched(slower_us: float, expected: bool) -> None:
    ours = replace(OURS, time_us=CUBLAS.time_us + slower_us)
    assert results.matched(row(finals=Finals(ours, CUBLAS))) == expected


def test_documents_state_what_the_result_files_do() -> None:
    texts = {path: path.read_text("utf-8") for path in results.documents()}
    stale = [path.name for path, text in texts.items() if results.rewritten(text) != text]
    assert stale == []  # else run `scripts/measure/results.py tables`


DEEP = Problem(64, 64, 11528, "bf16")


def test_vendor_file_counts_results_and_has_wrong_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = Passed(0.0, 1.0, 0.0, 9.0, "13.1.0")
    found = (
        VendorCheck(DEEP, "cuBLAS", right),
        VendorCheck(DEEP, "cuBLASLt 1", Failure("verify", "largest error 8")),
        VendorCheck(DEEP, "cuBLASLt 2", right),
        VendorCheck(DEEP, "cuBLASLt 3", right),
    )
    checks = VendorChecks(H100, "13.0", "13.1.0", found)
    monkeypatch.setattr(sys, "stdin", StringIO(json.dumps(vendor_json(checks))))
    path = tmp_path / "vendor-check.json"
    results.vendor(path, "abcdef0")
    data = json.loads(path.read_text())
    assert (data["cublas"], data["commit"], data["shapes"]) == ("13.1.0", "abcdef0", [DEEP.shape])
    assert [(*row.values(),) for row in data["counts"]] == [
        ("bf16", "cuBLAS", "verified", 1),
        ("bf16", "cuBLASLt", "wrong", 1),
        ("bf16", "cuBLASLt", "verified", 2),
    ]
    (wrong,) = data["wrong"]
    assert (wrong["shape"], wrong["runs"]) == (str(DEEP), "cuBLASLt 1")
    assert wrong["why"] == "largest error 8"
