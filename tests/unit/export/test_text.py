"""Texts of records in C comments and in the templates."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from autotune.export import text
from autotune.export.text import comment, line_comments

EVIL = "int evil;"
TEXTS = (
    f"*/ {EVIL} /*",
    f"*\\\n/ {EVIL} /*",
    f"*??/\n/ {EVIL} /*",
    f"**//{EVIL}",
    f"a\n{EVIL}",
    f"a\r{EVIL}\u2028{EVIL}",
    "ends in \\",
    "ends in ??/",
    "ends in \\ ",
    "ends in *",
)


@pytest.mark.parametrize("standard", ["c11", "c++14"])
def test_nothing_in_a_comment_ends_or_continues_it(standard: str, tmp_path: Path) -> None:
    lines = [text for text in TEXTS for _ in range(2)]
    parts = [
        comment(*lines),
        *(f"{line_comments(text)}\nint after_{n};" for n, text in enumerate(TEXTS)),
        comment(TEXTS[-1]),
        "int last;",
    ]
    suffix = "c" if standard == "c11" else "cpp"
    source = tmp_path / f"text.{suffix}"
    source.write_text("\n".join(parts))
    command = ["gcc", "-E", "-P", f"-std={standard}", "-trigraphs", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept = re.findall(r"\w+ \w+;", done.stdout)
    assert kept == [*(f"int after_{n};" for n in range(len(TEXTS))), "int last;"]


def test_filled_values_are_not_filled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    template = "/* @TITLE@ of @NAME@ */\n/* @TABLES@ */\ngemm_run GEMM_H\n  /* @EMPTY@ */\nend\n"
    monkeypatch.setattr(text, "_text", {"x.c": template, "driver.c": "", "problems.c": ""}.get)
    marks = {"TITLE": "@TABLES@ gemm_ @NAME@", "TABLES": "@TITLE@ /* @TITLE@ */", "EMPTY": ""}
    assert text.filled("x.c", "own", **marks) == (
        "/* @TABLES@ gemm_ @NAME@ of own */\n@TITLE@ /* @TITLE@ */\nown_run OWN_H\nend\n"
    )
