"""Completion in shells: recorded problems, words of shapes, devices and samplers, no file names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import own_machine, printed, run
from support.paths import ROOT
from support.sample_records import SQUARE, record
from support.sample_subject import user_kernel

from autotune import settings
from autotune.records import Store


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache with a problem and a user kernel."""
    own_machine(monkeypatch, tmp_path)
    Store(settings.cache_dir()).save(record())
    Store(settings.cache_dir()).save(user_kernel())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "512x512x512.txt").touch()


def completions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> list[str]:
    """What bash is told to put in the place of what follows the last `:` or `=` of a line."""
    monkeypatch.setenv("_AUTOTUNE_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_LINE", line)
    return [word.removeprefix("plain,") for word in printed(capsys).split()]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("autotune be", ["best"]),
        ("autotune cache ex", ["export"]),
        ("autotune best --obj", ["--objective"]),
        ("autotune best --objective c", ["cold"]),
        ("autotune best --device replay:s", ["synthetic"]),
        ("autotune tune --device=h10", ["h100-sxm", "h100-pcie"]),
        ("autotune tune --sampler ", ["gp", "tpe", "random", "exhaustive"]),
        ("autotune tune --effort ", ["quick", "default", "long", "exhaustive"]),
        ("autotune tune --family w", ["wgmma"]),
        ("autotune device rtx-30", ["rtx-3090"]),
        ("autotune best 40", [str(SQUARE)]),
        ("autotune best sax", ["saxpy"]),
        ("autotune best 64x64x64:bf", ["bf16"]),
        ("autotune best 64x64x64:bf16:gelu", ["gelu", "gelu_tanh"]),
        ("autotune best 64x64x64:bf16:out=", ["f32"]),
        ("autotune help sh", ["shapes"]),
        ("autotune cache prune j", ["journals"]),
    ],
)
def test_words_are_completed(
    line: str,
    some: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(some) - set(completions(capsys, monkeypatch, line)) == set()


@pytest.mark.parametrize(
    "line", ["autotune best 51", "autotune best 64x64x64:f32:f", "autotune tune --sampler 4"]
)
def test_nothing_else_is_completed(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = completions(capsys, monkeypatch, line)
    assert [word for word in words if word not in ("fast",)] == []


def test_files_are_completed_where_a_file_is_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completions(capsys, monkeypatch, "autotune report --out ") == ["file,"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_bash_replaces_the_end_of_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "autotune").write_text(f'#!/bin/sh\nexec {sys.executable} -m autotune "$@"\n')
    (tmp_path / "autotune").chmod(0o755)
    script = printed(capsys, "--show-completion", "bash")
    line = "autotune best 64x64x64:bf16:gelu_t"
    asked = f"COMP_LINE='{line}' COMP_POINT={len(line)}; _autotune_completion autotune"
    done = subprocess.run(
        ["bash", "-c", f'compopt() {{ :; }}\n{script}\n{asked}\necho "${{COMPREPLY[@]}}"'],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.stderr) == ("gelu_tanh\n", "")


@pytest.mark.parametrize(
    ("shell", "place", "startup"),
    [
        ("bash", ".bash_completions/autotune.sh", ".bashrc"),
        ("zsh", ".zfunc/_autotune", ".zshrc"),
        ("fish", ".config/fish/completions/autotune.fish", None),
    ],
)
def test_completion_is_installed_once(
    shell: str,
    place: str,
    startup: str | None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    for _ in range(2):
        assert run("--install-completion") == 0
    assert "_AUTOTUNE_COMPLETE" in (tmp_path / place).read_text()
    assert str(tmp_path / place) in capsys.readouterr().out
    if startup is not None:
        assert len((tmp_path / startup).read_text().splitlines()) == 1


def test_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--show-completion", "tcsh") == 2
    message = "error: no completion for the shell 'tcsh'; give one of bash, zsh, fish\n"
    assert capsys.readouterr().err == message


def test_broken_cache_completes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", __file__)
    assert completions(capsys, monkeypatch, "autotune best 1") == []
