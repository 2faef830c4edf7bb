"""The commands of the documents: the command line takes each, and the guides' run as they stand."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import run
from support.document_commands import Block, autotune_commands, blocks, inline
from support.paths import ROOT

# The changelog names commands of earlier versions.
DOCUMENTS = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {ROOT / "CHANGELOG.md"})
GUIDES = [
    ROOT / "README.md",
    *(ROOT / "docs" / f"{name}.md" for name in ("index", "student", "pytorch", "c-and-cpp")),
]
COMMANDS = [
    (str(block), words)
    for block in (*blocks(DOCUMENTS, "sh"), *inline(DOCUMENTS))
    for words in autotune_commands(block)
]
RUNNABLE = {
    guide.name: [
        block for block in blocks([guide], "sh") if not block.needs_gpu and block.runnable.strip()
    ]
    for guide in GUIDES
}
PROGRAMS = blocks(
    [ROOT / "docs" / f"{name}.md" for name in ("student", "kernel-authors")], "python"
)
PYTHON = blocks(DOCUMENTS, "python")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder like a fresh clone, with the commands `autotune` and `python` in `bin`."""
    folder = tmp_path / "clone"
    (folder / "bin").mkdir(parents=True)
    for name, words in {"python": "", "autotune": " -m autotune"}.items():
        script = folder / "bin" / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        script.chmod(0o755)
    for name in ("examples", "scripts", "docs"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def output(place: Path, command: list[str]) -> str:
    """The output of a command that succeeds, with an empty cache and no GPU of its own."""
    environment = {
        **os.environ,
        "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "AUTOTUNE_CACHE_DIR": str(place / "cache"),
    }
    done = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_documents_print_commands() -> None:
    assert len(COMMANDS) > 25
    assert min(map(len, RUNNABLE.values())) > 0


@pytest.mark.parametrize(("place_of", "words"), COMMANDS, ids=[" ".join(w) for _, w in COMMANDS])
def test_command_line_takes_the_command(place_of: str, words: list[str]) -> None:
    assert run(*words, "--help") == 0, place_of


@pytest.mark.parametrize("guide", RUNNABLE)
def test_commands_of_a_guide_run_in_order(guide: str, place: Path) -> None:
    for block in RUNNABLE[guide]:
        assert output(place, ["bash", "-euc", block.runnable]), block


@pytest.mark.parametrize("block", PROGRAMS, ids=str)
def test_programs_without_a_gpu_run(block: Block, place: Path) -> None:
    assert output(place, [sys.executable, "-c", block.text])


@pytest.mark.parametrize("block", PYTHON, ids=str)
def test_python_of_the_documents_is_valid(block: Block) -> None:
    assert compile(block.text, str(block), "exec")


def test_command_with_an_unknown_option_is_refused() -> None:
    assert run("occupancy", "--no-such-option", "--help") == 2


def test_preparation_is_left_out_of_what_runs() -> None:
    block = Block("x.md", 1, "sh", "", "pip install .\nautotune doctor\n")

    assert block.runnable == "autotune doctor"


def test_assignments_stand_before_a_command() -> None:
    block = Block("x.md", 1, "sh", "", "A=b autotune best \\\n  8x8x8  # why\nls\n")

    assert autotune_commands(block) == [["best", "8x8x8"]]
