"""Random invalid calls of the exported C library: refused before a launch, under sanitizers."""

from __future__ import annotations

from pathlib import Path

import pytest
from support import bad_calls

CALLS = 3000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calls")
    bad_calls.build(folder)
    return folder


def test_no_invalid_call_is_launched(folder: Path) -> None:
    result = bad_calls.run(folder, CALLS, seed=1)
    assert (result.unsafe, result.reports) == ((), "")
    # Both kinds of call occur often.
    assert min(result.refused, result.accepted) > CALLS / 4


@pytest.mark.parametrize(
    ("rule", "answer"),
    [
        ("return LIB_WORKSPACE_SMALL;", "a bad workspace"),
        ("return LIB_OVERLAP;", "C in another operand"),
        ("return LIB_SCALE_MISSING;", "no scale"),
        ("return LIB_SCALE_UNUSED;", "a scale without use"),
        ("return LIB_FACTORS;", "a factor of int32"),
    ],
)
def test_library_that_lacks_a_rule_is_caught(
    folder: Path, tmp_path: Path, rule: str, answer: str
) -> None:
    text = (folder / "lib.c").read_text()
    assert rule in text
    bad_calls.copy(folder, tmp_path)
    (tmp_path / "lib.c").write_text(text.replace(rule, ";"))
    bad_calls.compile(tmp_path)
    assert answer in "".join(bad_calls.run(tmp_path, CALLS, seed=1).unsafe)


def test_read_beyond_the_product_is_reported(folder: Path, tmp_path: Path) -> None:
    bad_calls.copy(folder, tmp_path)
    text = (folder / "lib.c").read_text()
    copied = "memset(given, 0, sizeof *given);"
    beyond = f"{copied} given->words[K] = ((const volatile char *)p)[sizeof *p];"
    (tmp_path / "lib.c").write_text(text.replace(copied, beyond))
    bad_calls.compile(tmp_path)
    assert "heap-buffer-overflow" in bad_calls.run(tmp_path, CALLS, seed=1).reports
