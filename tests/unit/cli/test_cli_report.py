"""`autotune report`: what it writes, prints and refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, printed, run
from support.paths import import_path
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100
from support.sample_subject import TRIALS, by_hand, searched, user_kernel

from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.report.pages.page import plotly_js

SHAPE = PROBLEM.shape


@pytest.fixture(autouse=True)
def _in_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Pages and other files go to the folder beside the cache."""
    monkeypatch.chdir(tmp_path)
    plotly_js.cache_clear()


def refused(capsys: pytest.CaptureFixture[str], status: int, *arguments: str) -> str:
    """The single line of an error."""
    capsys.readouterr()
    assert run("report", *arguments) == status
    output = capsys.readouterr()
    assert output.out == ""
    (line,) = output.err.splitlines()
    return line.removeprefix("error: ")


def data_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The data of a report."""
    return answer(capsys, "report", *arguments)


def measured(cache: Path, problem: Problem, hot_us: float = 10.0) -> Record:
    """Records a problem as measured."""
    record = by_hand().record
    assert isinstance(record, Record)
    entries = tuple(
        replace(entry, measurement=replace(entry.measurement, time_us=hot_us * (1 + number / 10)))
        for number, entry in enumerate(record.entries)
    )
    return Store(cache).save(replace(record, problem=problem, entries=entries))


def test_one_problem_is_a_page(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched(cache)
    capsys.readouterr()
    line = printed(capsys, "report", SHAPE)
    assert line.startswith(f"report.html: {PROBLEM} on NVIDIA H100 80GB HBM3: ")
    assert line.endswith(f"replayed; {TRIALS} trials\n")
    text = Path("report.html").read_text("utf-8")
    assert f"<title>{PROBLEM} on NVIDIA H100 80GB HBM3</title>" in text


def test_json_has_the_data_of_the_pictures(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    searched(cache)
    capsys.readouterr()
    data = data_of(capsys, SHAPE, "--device", DEVICE)
    assert data["headline"]["title"] == str(PROBLEM)
    assert len(data["steps"]) == TRIALS
    assert not Path("report.html").exists()


def test_json_needs_no_plotly(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    searched(cache)
    monkeypatch.setitem(sys.modules, "plotly", None)
    capsys.readouterr()
    assert data_of(capsys, SHAPE)["headline"]
    measured(cache, Problem(64, 64, 64))
    assert data_of(capsys)["rows"]
    assert "pip install 'tile-autotune[report]'" in refused(capsys, 1, SHAPE)


def test_only_record_of_the_cache_needs_no_name(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(cache, PROBLEM)
    assert data_of(capsys)["headline"]["title"] == str(PROBLEM)


def test_everything_in_the_cache_is_an_overview(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for m in (64, 128, 256):
        measured(cache, Problem(m, 256, 256), hot_us=float(m))
    Store(cache).save(user_kernel())
    data = data_of(capsys)
    assert [row["title"] for row in data["rows"]] == [
        *(f"{m}x256x256:f32:nn" for m in (64, 128, 256)),
        "saxpy(float32[1000], int32=1000)",
    ]
    assert printed(capsys, "report").endswith("4 problems on NVIDIA H100 80GB HBM3\n")


def test_range_takes_the_sizes_inside(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for m in (64, 128, 256):
        measured(cache, Problem(m, 256, 256))
    listed = data_of(capsys, "100..200x256x256")["rows"]
    assert [row["title"] for row in listed] == ["128x256x256:f32:nn"]


def test_record_without_trials_has_no_rows_and_says_so(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    measured(cache, PROBLEM)
    data = data_of(capsys, SHAPE)
    assert data["trials"]["rows"] == []
    assert "the record has its best 2 entries of 6 trials only" in data["note"]


def test_untuned_among_several_is_an_error(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(cache, PROBLEM)
    line = refused(capsys, 3, SHAPE, "512x512x512", "--device", "h100")
    assert "run `autotune tune 512x512x512:f32:nn --device h100`" in line


def test_user_kernel_is_found_by_its_name(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(cache).save(user_kernel())
    data = data_of(capsys, "saxpy")
    assert data["headline"]["tflops"] is None
    assert data["roofline"] is None
    assert data_of(capsys, user_kernel().slug) == data


def test_empty_cache_is_an_error_with_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    line = refused(capsys, 3)
    assert "run `autotune tune 4096x4096x4096`, without a GPU with `--device replay:h100`" in line


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("64x64x64", "--device", "h100"), 3, "run `autotune tune 64x64x64:f32:nn --device h100`"),
        (("64x64x64",), 3, "run `autotune tune 64x64x64:f32:nn --device NAME`"),
        (("1..64x64x64",), 3, "no size of 1..64x64x64 is recorded"),
        (("blur",), 3, "no kernel 'blur' is recorded"),
        (("64x64",), 2, "malformed shape '64x64'"),
        (("--json", "--open"), 2, "--json writes no page to open; give --out"),
        (("--device", "nosuch"), 2, "unknown device 'nosuch'"),
    ],
)
def test_bad_input_is_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, message: str
) -> None:
    assert message in refused(capsys, status, *arguments)


def test_unwritable_page_is_one_line(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    measured(cache, PROBLEM)
    for path in ("/dev/full", "missing/page.html", str(cache)):
        line = refused(capsys, 1, SHAPE, "--out", path)
        assert line.startswith(f"cannot write {path}: ")
        assert line.endswith("; give another path")


def test_broken_record_is_passed_over_with_a_warning(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for side in (64, 128, 256):
        measured(cache, Problem(side, side, side))
    path = Store(cache).path(H100, Problem(64, 64, 64))
    path.write_bytes(path.read_bytes().replace(b'"sms"', b'"tensor_memory"'))
    assert run("report", "--json") == 0
    output = capsys.readouterr()
    assert len(json.loads(output.out)["rows"]) == 2
    assert output.err.startswith(f"warning: {path}: skipped: ")


def test_open_without_a_browser_names_the_page(
    cache: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(cache, PROBLEM)
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda url: opened.append(url))
    assert run("report", SHAPE, "--open") == 0
    page = Path("report.html").resolve()
    assert opened == [page.as_uri()]
    assert capsys.readouterr().err == f"no browser here; open {page}\n"


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "autotune", *arguments]


def environment(cache: Path) -> dict[str, str]:
    return os.environ | {
        "PYTHONPATH": import_path(),
        "AUTOTUNE_CACHE_DIR": str(cache),
        "PYTHONIOENCODING": "ascii",
        "COLUMNS": "40",
    }


@pytest.mark.parametrize("output", ["--json", "--out=page.html"])
def test_full_standard_output_is_one_line(cache: Path, output: str) -> None:
    measured(cache, PROBLEM)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command("report", output),
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(cache),
            text=True,
        )
    assert done.returncode == 1
    line = "error: cannot write standard output: No space left on device"
    assert done.stderr.splitlines()[-1] == line
    assert "Traceback" not in done.stderr


def test_closed_pipe_ends_without_a_traceback(cache: Path) -> None:
    measured(cache, PROBLEM)
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            command("report", "--json"),
            stdout=writing,
            stderr=subprocess.PIPE,
            env=environment(cache),
            text=True,
        )
    finally:
        os.close(writing)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_ascii_terminal_shows_other_letters_as_escapes(cache: Path) -> None:
    record = measured(cache, PROBLEM)
    device = replace(record.device, name="NVIDIA Émile H100")
    Store(cache).save(replace(record, device=device))
    done = subprocess.run(
        command("cache", "list", "--problems"),
        env=environment(cache),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "NVIDIA \\xc9mile H100" in done.stdout
    assert "Traceback" not in done.stderr


def test_family_that_was_tuned_alone_stands_apart(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (SHAPE, "--device", DEVICE)
    searched(cache)
    assert run("tune", *arguments, "--family", "tiled") == 0
    capsys.readouterr()
    alone = data_of(capsys, SHAPE, "--family", "tiled")
    assert alone["headline"]["title"] == f"{PROBLEM} --family tiled"
    assert {step["family"] for step in alone["steps"]} == {"tiled"}
    overall = data_of(capsys, SHAPE)
    assert overall["headline"]["title"] == str(PROBLEM)
    assert {step["family"] for step in overall["steps"]} == {"simt"}
    assert data_of(capsys)["headline"]["title"] == str(PROBLEM)
    assert "the naive family was not tuned alone" in refused(capsys, 3, SHAPE, "--family", "naive")


def test_interrupted_search_is_marked(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = by_hand().record
    Store(cache).save(replace(record, provenance=replace(record.provenance, interrupted=True)))
    printed(capsys, "report", SHAPE)
    assert "The search was interrupted" in Path("report.html").read_text("utf-8")
    measured(cache, Problem(64, 64, 64), hot_us=8.0)
    assert [row["how"] for row in data_of(capsys)["rows"]] == ["tuned", "interrupted"]


def test_help_imports_no_pictures(cache: Path) -> None:
    script = (
        "import sys\nfrom autotune import cli\n"
        "try: cli.main(['report', '--help'])\n"
        "except SystemExit: pass\n"
        "heavy = ('plotly', 'kaleido', 'numpy', 'optuna', 'autotune.report')\n"
        "print([name for name in sys.modules if name.startswith(heavy)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(cache), capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
