"""Records and answers as text and as JSON."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from io import StringIO

import pytest
from hypothesis import given, settings
from rich.console import Console
from support.sample_records import H100, SQUARE, entry, record, records

import autotune
from autotune.families.config import Config, Value
from autotune.lookup.answer import Answer
from autotune.measure.measurement import Energy, Evidence, Measurement
from autotune.measure.objective import COLD, ENERGY, HOT, Objective
from autotune.problem import Problem
from autotune.records import FamilyRecord, Record
from autotune.records.codec import loads
from autotune.report.record import render, to_json

NEAR = Problem(4096, 4096, 2048)
SIMT = Config.parse(
    "simt:bm=128,bn=256,bk=16,wm=64,wn=64,tm=16,tn=8,stages=4,copy=async,fragments=2,"
    "min_blocks=1,order=snake,split_k=1,group=16"
)


def _text(result: Record | Answer, objective: Objective = HOT) -> str:
    console = Console(width=80, file=StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(render(result, objective))
    return "".join(f"{line.rstrip()}\n" for line in captured.get().splitlines())


def _nearest() -> Answer:
    near = record(entry(16, 450.0), entry(32, 500.0), problem=NEAR, baseline_us=400.0)
    config = near.best.config
    return Answer(SQUARE, H100, config, "nearest", "predicted", near, 900.0, "it is not tuned")


def _model_choice() -> Answer:
    return Answer(SQUARE, H100, SIMT, "predicted", "predicted", None, 2700.0, "the model's choice")


def test_table_of_an_answer_is_that_of_the_command_line() -> None:
    for answer in (_nearest(), _model_choice()):
        table = autotune.table(answer)
        assert str(table) + "\n" == _text(answer)
        assert "<pre" in table._repr_html_()
        assert html.escape(answer.note) in table._repr_html_()


def test_printed_answer_is_lines_of_its_own_facts() -> None:
    assert str(_model_choice()).splitlines() == [
        f"{SQUARE} on {H100.name}: 2700.00 us, predicted",
        str(SIMT),
        "the model's choice",
    ]


def test_record_text() -> None:
    measured = record(entry(16, 27487.79, 12.5), entry(32, 28000.0), baseline_us=2665.97)
    assert _text(measured) == EXPECTED


EXPECTED = """\
4096x4096x4096:f32:nn on NVIDIA H100 80GB HBM3                          MEASURED
time       27487.8 us +- 12.50 us
speed      5.00 TFLOP/s, 7.5% of peak fp32
cuBLAS     2666.0 us; 9.7% of its speed: faster, `matmul` calls it
vendor     not verified
config     tiled:tile_width=16
block      256 threads, 32 registers a thread, 2048 bytes shared, 0 local
occupancy  75.0%, bound by threads
error      1.00e-04 largest, 1.00e-03 allowed

 runner-up  TFLOP/s  regs  shared  occ.  differs in
28000.0 us     4.91    32    8192   75%  tile_width=32

2026-11-21T12:00:00Z, 9 trials in 6 s, seed 1; driver 13.0, NVRTC 13.0, autotune
0.1.0, source 5e1f
"""


def _twofold() -> Record:
    """A record whose hot and cold winners differ, beside cuBLAS."""
    entries = (
        replace(made, measurement=replace(made.measurement, cold_us=cold_us, cold_spread_us=4.0))
        for made, cold_us in ((entry(16, 200.0, 1.0), 380.0), (entry(32, 220.0, 2.0), 320.0))
    )
    baseline = Measurement(210.0, 1.0, 20, cold_us=350.0)
    return replace(record(*entries), baseline=baseline)


def test_text_has_the_best_cold_beside_cublas() -> None:
    lines = [line.split(maxsplit=1) for line in _text(_twofold()).splitlines() if line]
    facts = {line[0]: line[1] for line in lines[1:8]}
    assert facts["time"] == "200.0 us +- 1.00 us, cold 380.0 us"
    assert facts["cuBLAS"] == "210.0 us, cold 350.0 us; 105.0% of its speed, cold 92.1%"
    assert "best cold  320.0 us, 109.4% of cuBLAS's speed: tile_width=32\n" in _text(_twofold())


def _metered() -> Record:
    """A record whose second entry takes less energy, beside cuBLAS."""
    entries = (
        replace(made, measurement=replace(made.measurement, energy=energy))
        for made, energy in (
            (entry(16, 200.0, 1.0), Energy(0.1284, 0.0004, 642.4, 1_755.2)),
            (entry(32, 220.0, 2.0), Energy(0.0964, 0.0, 438.2, 1_980.0)),
        )
    )
    vendor = Measurement(210.0, 1.0, 20, energy=Energy(0.0931, 0.0, 443.3, 1_900.0))
    return replace(record(*entries), baseline=vendor)


def test_text_has_the_energy_beside_cublas() -> None:
    text = _text(_metered())
    beside = "cuBLAS 93.1 mJ"
    assert f"energy        0.1284 J +- 0.4 mJ a run, 642 W at 1755 MHz; {beside}\n" in text
    assert "least energy  96.4 mJ: tile_width=32\n" in text


def test_text_of_the_kernel_with_the_least_energy() -> None:
    text = _text(_metered(), ENERGY)
    assert "time       220.0 us +- 2.00 us\n" in text
    assert "config     tiled:tile_width=32\n" in text
    assert "energy     96.4 mJ a run, 438 W at 1980 MHz; cuBLAS 93.1 mJ\n" in text
    assert "`matmul` calls it" not in text  # it goes by times


def test_json_has_the_energies() -> None:
    document = to_json(_metered())
    assert [document[name] for name in ("joules", "power_w", "clock_mhz", "cublas_joules")] == [
        *(0.1284, 642.4, 1755.2, 0.0931)
    ]
    assert document["least_energy"] == "tiled:tile_width=32"
    assert to_json(record())["joules"] is None


def test_text_of_the_cold_kernel() -> None:
    text = _text(_twofold(), COLD)
    assert "cold time  320.0 us +- 4.00 us, hot 220.0 us\n" in text
    assert "cuBLAS     350.0 us, hot 210.0 us; 109.4% of its speed, hot 95.5%\n" in text
    assert "config     tiled:tile_width=32\n" in text
    assert "best hot   200.0 us, 105.0% of cuBLAS's speed: tile_width=16\n" in text


def test_one_winner_of_both_times_has_no_line_of_its_own() -> None:
    alone = replace(_twofold(), entries=_twofold().entries[:1])
    assert not {line[:5] for line in _text(alone).splitlines()} & {"best "}


@pytest.mark.parametrize("evidence", ["measured", "replayed", "predicted"])
def test_first_line_ends_with_the_evidence(evidence: Evidence) -> None:
    first = _text(record(evidence=evidence)).splitlines()[0]
    assert first.endswith(evidence.upper())


@pytest.mark.parametrize("answer", [_nearest(), _model_choice()], ids=["nearest", "model"])
def test_answer_without_its_own_record_is_predicted(answer: Answer) -> None:
    assert _text(answer).splitlines()[0].endswith("PREDICTED")


@pytest.mark.parametrize("answer", [_nearest(), _model_choice()], ids=["nearest", "model"])
def test_note_of_an_answer_is_shown(answer: Answer) -> None:
    assert answer.note in _text(answer)


def test_neighbours_time_is_shown_as_the_neighbours() -> None:
    assert "4096x4096x2048:f32:nn: 450.0 us, 152.71 TFLOP/s measured there" in _text(_nearest())


def test_neighbours_baseline_is_not_shown() -> None:
    assert "cuBLAS" not in _text(_nearest())


def _full() -> Record:
    """Ten entries with the longest `simt` configurations."""
    entries = [
        replace(entry(16, 100.0 + number), config=replace(SIMT, params=_varied(number)))
        for number in range(10)
    ]
    provenance = replace(record().provenance, source="a" * 64, trials=10_000, seconds=1e5)
    full = replace(record(*entries, baseline_us=2665.97), provenance=provenance)
    return replace(full, device=replace(H100, name="NVIDIA RTX PRO 6000 Blackwell Server Edition"))


def _varied(number: int) -> tuple[tuple[str, Value], ...]:
    return tuple(
        (name, value + number if isinstance(value, int) else value) for name, value in SIMT.params
    )


def test_full_record_fits_a_screen() -> None:
    lines = _text(_full()).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_longest_configuration_fits_a_screen() -> None:
    longest = Config.parse(
        "wgmma:swap=0,bm=128,bn=256,consumers=2,schedule=cooperative,min_blocks=1,"
        "source=registers,low=kernel,bk=64,promote=4,cluster=2x1,split_k=128,reduction=stream,"
        "workers=396,store=staged,stages=4,group=16"
    )
    full = _full()
    entries = (replace(full.entries[0], config=longest), *full.entries[1:])
    problem = Problem(16384, 16384, 16384, "tf32x3", "nt", 16, "bias_gelu")
    lines = _text(replace(full, problem=problem, entries=entries)).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_tf32x3_is_compared_with_cublas_in_fp32() -> None:
    measured = record(problem=replace(SQUARE, compute="tf32x3"), baseline_us=1800.0)
    assert "cuBLAS in fp32  1800.0 us; 200.0% of its speed\n" in _text(measured)


def test_runner_up_shows_differing_parameters_only() -> None:
    runner_up = replace(
        entry(16, 101.0), config=replace(SIMT, params=(*SIMT.params[:-1], ("group", 4)))
    )
    text = _text(record(replace(entry(16, 100.0), config=SIMT), runner_up))
    assert text.count("group=4") == 1
    assert text.count("bm=128") == 1


def test_record_of_one_family_names_it() -> None:
    entries, run = (entry(32, 900.0),), record().provenance
    alone = FamilyRecord(H100, "measured", entries, None, run, SQUARE, "tiled")
    console = Console(width=80, file=StringIO(), color_system=None)
    with console.capture() as captured:
        console.print(render(alone))
    lines = captured.get().splitlines()
    assert lines[0].startswith("4096x4096x4096:f32:nn --family tiled on NVIDIA H100")
    assert [line.rstrip() for line in lines if line.startswith("config")] == [
        "config     tiled:tile_width=32"
    ]
    data = to_json(alone)
    assert (data["family"], data["config"]) == ("tiled", str(entry(32, 1.0).config))


def test_interrupted_record_is_marked() -> None:
    whole = record()
    cut = replace(whole, provenance=replace(whole.provenance, interrupted=True))
    assert "interrupted after 9 trials in 6 s" in _text(cut)
    assert "interrupted" not in _text(whole)
    assert [to_json(made)["interrupted"] for made in (whole, cut)] == [False, True]


def test_tied_runners_up_are_marked() -> None:
    text = _text(record(entry(16, 100.0), entry(32, 100.4), entry(64, 100.6)))
    assert "\ntied 100.4 us " in text
    assert text.count("tied") == 1


def test_json_names_the_ties() -> None:
    entries = entry(16, 100.0), entry(32, 100.4), entry(64, 100.6)
    assert to_json(record(*entries))["ties"] == [str(entries[1].config)]


def test_brackets_are_not_markup() -> None:
    assert "bound by [bold]" in _text(record(replace(entry(16, 1.0), limiter="[bold]")))


@settings(max_examples=40)
@given(records())
def test_any_record_renders(any_record: Record) -> None:
    assert str(any_record.problem) in _text(any_record)


# JSON


def test_json_figures_of_a_record() -> None:
    data = to_json(record(entry(16, 2000.0), baseline_us=1900.0))
    figures = {name: data[name] for name in ("time_us", "tflops", "peak_share", "ratio")}
    # 2 x 4096^3 FLOP in 2 ms are 68.72 TFLOP/s; the H100 of the tests has a peak of 66.9.
    assert figures == pytest.approx(
        {"time_us": 2000.0, "tflops": 68.719, "peak_share": 1.0272, "ratio": 0.95}, rel=1e-4
    )


def test_json_figures_of_the_objective() -> None:
    names = ("objective", "time_us", "cublas_us", "ratio", "vendor", "cold_us", "cold_ratio")
    hot, cold = ([to_json(_twofold(), it)[name] for name in names] for it in (HOT, COLD))
    assert hot == ["hot", 200.0, 210.0, 1.05, False, 320.0, 350.0 / 320.0]
    assert cold == ["cold", 320.0, 350.0, 350.0 / 320.0, False, 320.0, 350.0 / 320.0]


# Peaks of 132 SMs at 1.98 GHz with 2 FLOP for each of 128 fp32 lanes, of 1024 (tf32) or of 2048
# products of tensor cores a clock; tf32x3 makes three of them.
@pytest.mark.parametrize(
    ("compute", "peak", "name"),
    [
        ("f32", 66.9e12, "fp32"),
        ("tf32", 535.3e12, "tf32"),
        ("tf32x3", 178.4e12, "tf32x3"),
        ("f16", 1070.5e12, "fp16"),
        ("bf16", 1070.5e12, "bf16"),
    ],
)
def test_share_is_of_the_precisions_peak(compute: str, peak: float, name: str) -> None:
    problem = replace(SQUARE, compute=compute)
    measured = record(entry(16, 2000.0), problem=problem)
    share = to_json(measured)["peak_share"]
    assert share == pytest.approx(2 * 4096**3 / 2e-3 / peak, rel=1e-3)
    assert f"{share:.1%} of peak {name}\n" in _text(measured)


def test_unknown_values_are_null() -> None:
    data = to_json(_model_choice())
    assert (data["record"], data["ratio"], data["cublas_us"]) == (None, None, None)


def test_neighbours_answer_is_predicted_in_json() -> None:
    data = to_json(_nearest())
    assert (data["how"], data["evidence"]) == ("nearest", "predicted")


@given(records())
def test_json_holds_the_whole_record(any_record: Record) -> None:
    stated = json.loads(json.dumps(to_json(any_record)))["record"]
    assert loads(json.dumps(stated).encode()) == any_record


def test_refused_vendor_library_is_named_with_its_reason() -> None:
    made = record(entry(16, 900.0))
    fault = "wrong result for small integers: largest error 1"
    made = replace(made, provenance=replace(made.provenance, baseline_fault=fault))
    assert f"cuBLAS wrong: {fault}" in " ".join(_text(made).split())
    assert to_json(made)["cublas_us"] is None
    assert to_json(made)["cublas_result"] == f"wrong: {fault}"
    assert to_json(_nearest())["cublas_result"] is None
