"""Specifications of user kernels, and the verb that tunes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import saxpy_spec
from support.command_line import own_machine, run
from support.paths import ROOT
from support.sample_user_kernels import KernelRunner

from autotune.api.specifications import read_spec
from autotune.device import find
from autotune.errors import UsageError
from autotune.measure import devices
from autotune.user_kernels import bench

SPEC = """
import numpy as np
from autotune import Search, Verification
from helper import N
KERNEL = {
    "source": \"\"\"
    template <int THREADS, int EACH> __global__ void fill(float* out) { out[threadIdx.x] = EACH; }
    \"\"\",
    "name": "fill",
    "parameters": {"THREADS": (32, 64), "EACH": (1,)},
    "grid": 1,
    "block": lambda p: p["THREADS"],
    "arguments": [np.zeros(N, np.float32)],
    "reference": lambda out: [out + 1],
    "search": Search(trials=1),
}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    own_machine(monkeypatch, tmp_path)
    (tmp_path / "helper.py").write_text("N = 64\n")
    (tmp_path / "spec.py").write_text(SPEC)
    return tmp_path / "spec.py"


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> KernelRunner:
    class Opened(KernelRunner):
        driver = "13.0"

    runner = Opened()
    monkeypatch.setattr(devices, "probe", lambda _=0: find("h100"))
    monkeypatch.setattr(bench, "open_kernel_runner", lambda *_, **__: runner)
    return runner


def test_verb_tunes_what_the_file_says(
    spec: Path, runner: KernelRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", str(spec), "--quiet") == 0
    assert "fill(float32[64]) on NVIDIA H100" in capsys.readouterr().out
    assert len(runner.measured) == 1


def test_options_replace_what_the_file_says(
    spec: Path, runner: KernelRunner, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--trials", "5", "--sampler", "exhaustive", "--quiet", "--json"
    assert run("tune", str(spec), *words) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["kernel"]["name"], len(data["entries"])) == ("fill", 2)
    assert len(runner.measured) == 2


def test_option_records_the_trials(
    spec: Path, runner: KernelRunner, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "fill.json.gz"
    assert run("tune", str(spec), "--quiet", "--recording", str(path)) == 0
    assert run("tune", str(spec), "--quiet", "--device", f"replay:{path}") == 0
    assert "REPLAYED" in capsys.readouterr().out
    assert len(runner.measured) == 1
    assert run("tune", str(spec), "--device", f"replay:{path}", "--recording", str(path)) == 2
    assert "a replay has no times to record; give a GPU" in capsys.readouterr().err


def test_occupancy_needs_no_gpu(spec: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("occupancy", str(spec), "h100") == 0
    assert "THREADS" in capsys.readouterr().out
    assert run("occupancy", str(spec), "--json") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("64x64x64",), "a user kernel is tuned alone; give one SPEC.py"),
        (("--family", "simt"), "a user kernel takes no --family; leave it out"),
    ],
)
def test_options_of_shapes_are_refused(
    spec: Path, words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", str(spec), *words) == 2
    assert capsys.readouterr().err == f"error: {message}\n"


def test_source_is_looked_for_beside_the_file(spec: Path) -> None:
    spec.write_text(
        'from pathlib import Path\nKERNEL = {"source": Path("k.cu"), "name": "k", "parameters": {}}'
    )
    assert read_spec(spec)["source"] == spec.parent / "k.cu"


def test_file_may_name_a_source_beside_itself(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec.write_text(
        "from pathlib import Path\n"
        'KERNEL = {"source": Path(__file__).with_name("k.cu"), "name": "k", "parameters": {}}'
    )
    monkeypatch.chdir(spec.parents[1])
    assert read_spec(Path(spec.parent.name, spec.name))["source"] == spec.parent / "k.cu"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", r"spec.py has no KERNEL; set it to a dict of the keywords"),
        ("KERNEL = 7", r"has no KERNEL"),
        ("KERNEL = {'nam': 'k'}", r"KERNEL has 'nam', no keyword of tune_kernel; .* 'name'\?"),
        ("KERNEL = {'name': 'k'}", "KERNEL lacks source, parameters"),
        (
            "KERNEL = {'answer': []}",
            r"'answer', no keyword .*; its word here is reference",
        ),
        ("\nKERNEL = 1 / 0", r"spec.py:2: ZeroDivisionError: division by zero"),
        ("def KERNEL():\n    raise KeyError('n')", r"spec.py:2: KeyError: 'n'"),
        ("KERNEL = {", r"spec.py: SyntaxError: "),
    ],
)
def test_file_that_is_no_specification_is_refused(spec: Path, text: str, message: str) -> None:
    spec.write_text(text)
    with pytest.raises(UsageError, match=message):
        read_spec(spec)


def test_missing_file_or_arguments_are_usage_errors(
    spec: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", str(spec.parent / "none.py")) == 2
    assert "none.py is not a file" in capsys.readouterr().err
    spec.write_text(SPEC.replace('"arguments"', '"verify": Verification(atol=0.0), #'))
    assert run("tune", str(spec)) == 2
    assert "KERNEL lacks arguments" in capsys.readouterr().err


def test_example_is_a_specification() -> None:
    keywords: dict[str, Any] = read_spec(ROOT / "examples" / "saxpy_spec.py")
    assert keywords["problem_size"] == saxpy_spec.N
    assert [type(argument).__name__ for argument in keywords["arguments"]] == [
        *("ndarray", "ndarray", "float32", "int32")
    ]
