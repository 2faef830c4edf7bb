"""Options of a problem, which help does not show, and what parsing a command line imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import answer, own_machine, run

SCRIPT = """
import sys
from autotune import cli
try: cli.main(["tune", "64x64x64", "--sampler", "none"])
except SystemExit: pass
print([name for name in ("pydantic", "typer", "numpy", "optuna", "rich") if name in sys.modules])
"""


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own_machine(monkeypatch, tmp_path)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (("--compute", "bf16", "--layout", "tn"), "64x64x64:bf16:tn"),
        (("--batch", "3", "--epilogue", "bias_relu"), "64x64x64:f32:nn:batch=3:bias_relu"),
        (("--compute", "f8", "--output", "f16"), "64x64x64:f8:nn:out=f16"),
        (
            ("--compute", "f8", "--scale", "row", "--accumulate", "fast"),
            "64x64x64:f8:scale=row:fast",
        ),
        (("--compute", "f8e5", "--e5m2", "b"), "64x64x64:f8e5:e5m2=b"),
        (("--accuracy", "near"), "64x64x64:tf32x3"),
    ],
)
def test_hidden_options_state_what_the_text_states(
    options: tuple[str, ...], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    stated = answer(capsys, "best", "64x64x64", *options, "--device", "h100")
    assert stated["problem"] == answer(capsys, "best", text, "--device", "h100")["problem"]


def test_text_of_another_type_is_refused() -> None:
    assert run("best", "64x64x64", "--batch", "some") == 2


def test_parsing_imports_no_library() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
