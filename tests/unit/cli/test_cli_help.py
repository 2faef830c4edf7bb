"""Help: how many verbs and options it shows, and its text."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from support.command_line import printed, run
from support.help_pages import OPTIONS_MOST, VERBS_MOST, shown_options, verbs

from autotune import cli

NAMES = ["", "cache", *(name for name, _ in verbs())]


def test_verbs_and_options_are_few() -> None:
    listed = dict(verbs())
    options = {name: len(shown_options(verb)) for name, verb in listed.items()}
    assert len(listed) <= VERBS_MOST, [*listed]
    assert sum(options.values()) <= OPTIONS_MOST, options


@pytest.mark.parametrize("verb", NAMES)
def test_help_of_every_verb_is_plain_words(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, *verb.split(), "--help")
    assert shown.startswith(f"Usage: {' '.join(['autotune', *verb.split()])} [OPTIONS]")
    assert re.findall(r"\{\w*\}|\[\[|\]\]|</?[a-z][\w. \[\]]*>|\blist\[", shown) == []
    assert "None" not in shown
    assert printed(capsys, "help", *verb.split()) == shown


def test_headings_group_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, "--help")
    headings = re.findall(r"^(\w[\w ]*):$", shown, re.MULTILINE)
    assert headings == ["Options", *cli.VERBS]
    listed = re.findall(r"^  ([\w-]+)  ", shown.partition("Tune and use:")[2], re.MULTILINE)
    assert listed == [*cli.root().commands]
    assert "..." not in shown.partition("Tune and use:")[2]


def test_no_words_print_help_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 2
    assert capsys.readouterr().err.startswith("Usage: autotune [OPTIONS] COMMAND [ARGS]...\n")


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("shapes", ["bf16", "tn", "batch=N", "bias_gelu_tanh", "out=TYPE", "1..512x4096x4096"]),
        ("devices", ["gpu:0,1", "replay:h100", "sm_86"]),
        ("families", ["wgmma", "tiled", "by name only"]),
    ],
)
def test_topics_are_explained(
    topic: str, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    text = printed(capsys, "help", topic)
    assert [word for word in words if word not in text] == []


def test_unknown_topic_names_a_close_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("help", "shape") == 2
    assert "no topic or verb 'shape'; did you mean 'shapes'?" in capsys.readouterr().err


SCRIPT = """
import sys
from autotune import cli
try: cli.main(["tune", "64x64x64", "--sampler", "none"])
except SystemExit: pass
print([name for name in ("pydantic", "typer", "numpy", "optuna", "rich") if name in sys.modules])
"""


def test_parsing_imports_no_library() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"
