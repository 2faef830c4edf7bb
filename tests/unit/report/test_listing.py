"""The list of all records, in Python and as a table."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html.parser import HTMLParser
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.logged import logs
from support.sample_records import H100, SQUARE, entry, record

import autotune
from autotune import report, settings
from autotune.api.lookups import RecordList
from autotune.device import find
from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Origin
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Record, Store
from autotune.records.kernel_record import KernelEntry
from autotune.report import listing, tables

TODAY = Origin("13.0", "NVRTC 13.0", "5e1f")

SMALL = Problem(64, 64, 64, "bf16")


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))


def kernel_record() -> KernelRecord:
    own = replace(entry(16, 10.0), config=Config.of("transpose", {"TILE": 32}))
    call = KernelCall("transpose<float>", ("float32[64,32]",))
    return KernelRecord(H100, "measured", (KernelEntry.of(own),), None, record().provenance, call)


def row(listed: Record | KernelRecord) -> listing.RecordRow:
    (only,) = listing.record_rows([listed], TODAY)
    return only


def text_in(html: str) -> str:
    """The text of an HTML document, in which every tag that is opened is closed."""
    texts: list[str] = []
    open_tags: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, _: object) -> None:
            open_tags.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert open_tags.pop() == tag

        def handle_data(self, data: str) -> None:
            texts.append(data)

    Reader().feed(html)
    assert open_tags == []
    return "".join(texts)


def test_row_compares_with_cublas() -> None:
    best = replace(entry(16, 900.0), measurement=Measurement(900.0, cold_us=1000.0))
    timed = replace(record(best), baseline=Measurement(1080.0, cold_us=1100.0))
    figures = row(timed)
    assert (figures.time_us, figures.ratio) == (900.0, 1.2)
    assert (figures.cold_us, figures.cold_ratio) == (1000.0, 1.1)


def test_row_without_cublas_has_no_ratio() -> None:
    assert (row(record()).ratio, row(record()).cold_ratio) == (None, None)


def test_row_says_what_changed() -> None:
    assert (row(record()).changed, row(record()).stale) == (None, None)
    stale = row(record(source="0ld"))
    assert stale.changed == stale.stale == "kernel sources 0ld, now 5e1f"


def test_another_driver_is_shown_and_not_stale() -> None:
    (only,) = listing.record_rows([record()], replace(TODAY, driver="13.1"))
    assert (only.changed, only.stale) == ("driver 13.0, now 13.1", None)
    text = tables.text_of(listing.record_table([only]), 160)
    assert "driver 13.0, now 13.1" in text
    assert "stale" not in text


def test_interrupted_search_is_marked() -> None:
    cut = replace(record(), provenance=replace(record().provenance, interrupted=True))
    assert row(cut).interrupted
    text = tables.text_of(listing.record_table(listing.record_rows([cut], TODAY)), 120)
    assert "measured, interrupted" in text


def test_sources_of_user_kernels_are_not_compared() -> None:
    (only,) = listing.record_rows([kernel_record()], replace(TODAY, source="other"))
    assert only.stale is None


@pytest.mark.parametrize(
    ("age", "text"), [(59, "59 s"), (61, "1 min"), (7300, "2 h"), (400_000, "4 d")]
)
def test_age_is_since_the_record_was_saved(age: int, text: str) -> None:
    saved = datetime.now(timezone.utc) - timedelta(seconds=age)
    dated = replace(record().provenance, date=saved.isoformat(timespec="seconds"))
    only = row(replace(record(), provenance=dated))
    assert only.age_s is not None
    assert age <= only.age_s < age + 60
    assert report.age(age) == text


def test_date_that_cannot_be_read_has_no_age() -> None:
    dated = replace(record().provenance, date="yesterday")
    assert row(replace(record(), provenance=dated)).age_s is None


def test_records_lists_the_cache_by_device_and_problem() -> None:
    store = Store(settings.cache_dir())
    store.save(kernel_record())
    for saved in (record(problem=SQUARE), record(problem=SMALL), record(device=find("a100"))):
        store.save(saved)
    listed = autotune.list_records()
    assert [made.title for made in listed] == [
        str(SQUARE),
        str(SMALL),
        str(SQUARE),
        "transpose<float>(float32[64,32])",
    ]
    assert {made.device.name for made in autotune.list_records("a100")} == {find("a100").name}


def test_records_of_an_empty_cache_are_none() -> None:
    assert autotune.list_records() == ()
    assert str(autotune.list_records()).split() == [
        *("problem", "device", "evidence", "time", "over", "cuBLAS", "age", "changed")
    ]


def test_records_skips_a_broken_file_with_a_warning() -> None:
    store = Store(settings.cache_dir())
    store.save(record())
    path = store.path(H100, SMALL)
    path.write_text("{")
    with logs(f"{path.name}: skipped: it is not JSON"):
        assert [made.title for made in autotune.list_records()] == [str(SQUARE)]


def test_notebooks_show_a_table_of_all_records() -> None:
    Store(settings.cache_dir()).save(kernel_record())
    text = text_in(autotune.list_records()._repr_html_())
    assert "transpose<float>" in text


def test_table_of_a_record_is_that_of_the_command_line() -> None:
    shown = str(autotune.table(record()))
    assert shown.splitlines()[0].split()[-1] == "MEASURED"
    assert "speed      152.71 TFLOP/s" in shown


def test_table_of_a_kernel_record_has_its_parameters() -> None:
    text = str(autotune.table(kernel_record()))
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line]
    assert lines[0][0] == "transpose<float>(float32[64,32])"
    assert lines[0][1].split() == ["on", *H100.name.split(), "MEASURED"]
    assert ["config", "transpose:TILE=32"] in lines
    assert ["time", "10.00 us"] in lines


def test_special_characters_of_html_are_escaped() -> None:
    made = replace(record(), device=replace(H100, name="<b>H100</b> & <script>"))
    page = autotune.table(made)._repr_html_()
    assert "<script>" not in page
    assert "<b>H100</b> & <script>" in text_in(page)
    assert "<script>" not in RecordList([made])._repr_html_()


def test_notebooks_show_a_record_as_it_is_printed() -> None:
    for made in (record(), kernel_record()):
        table = autotune.table(made)
        shown = text_in(table._repr_html_())
        assert [line.rstrip() for line in shown.splitlines()] == str(table).splitlines()


def test_printed_record_is_lines_of_its_own_facts() -> None:
    assert str(record(entry(16, 900.0), baseline_us=950.0)).splitlines() == [
        f"{SQUARE} on {H100.name}, measured {record().provenance.date}",
        str(entry(16, 900.0).config),
        "900.00 us +- 0.00",
        "occupancy 75.0%, bound by threads",
        "vendor baseline 950.00 us, not verified",
        "9 configurations tried in 6 s, 1 recorded",
    ]
    assert "transpose<float>(float32[64,32])" in str(kernel_record())


def test_ipython_shows_the_lines_of_a_record() -> None:
    shown = StringIO()
    printer = SimpleNamespace(text=shown.write)
    record()._repr_pretty_(printer, False)
    assert shown.getvalue() == str(record())
