"""Lists, ranges and units of amounts."""

from __future__ import annotations

import pytest

from autotune.cli.device import MOST, amounts
from autotune.errors import UsageError


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["256"], (256,)),
        (["32", "40", "48"], (32, 40, 48)),
        (["32,40,32"], (32, 40)),
        (["48K"], (49152,)),
        (["1kb", "1KiB"], (1024,)),
        (["64..128"], (64, 96, 128)),
        (["50..100"], (50, 64, 96, 100)),
        (["0..2K:1K"], (0, 1024, 2048)),
        (["7..7"], (7,)),
        (["8..9", "16"], (8, 9, 16)),
    ],
)
def test_amounts_are_lists_ranges_and_units(texts: list[str], expected: tuple[int, ...]) -> None:
    assert amounts(texts, "--threads", 32) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "--shared is 'many'; give an amount, such as 256 or 48K, or a range"),
        ("-5", "--shared is '-5'; give an amount"),
        ("4M", "--shared is '4M'; give an amount"),
        ("1..", "--shared is '1..'; give an amount"),
        ("1.5K", "--shared is '1.5K'; give an amount"),
        ("9..8", "--shared is '9..8'; give the smaller end first and a step above 0"),
        ("0..8:0", "--shared is '0..8:0'; give the smaller end first and a step above 0"),
        ("0..1000000:1", "--shared is '0..1000000:1': 1000000 amounts; at most 10000"),
        ("", "--shared names 0 amounts; give 1 to 10000"),
    ],
)
def test_other_amounts_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        amounts([text], "--shared", 1024)
    assert str(refused.value).startswith(message)


def test_lists_of_too_many_amounts_are_refused() -> None:
    with pytest.raises(UsageError, match=f"give 1 to {MOST}"):
        amounts([f"0..{MOST - 1}:1", f"{MOST}..{MOST + 5}:1"], "--shared", 1024)
