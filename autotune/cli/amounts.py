"""Amounts on the command line: lists, ranges and units, such as `64..1024` or `0..96K:8K`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autotune.errors import UsageError

MOST = 10_000
"""Kernels of a sweep; more would fill screens for minutes."""

_UNITS = {"": 1, "B": 1, "K": 1024, "KB": 1024, "KIB": 1024}
_AMOUNT = r"(\d{1,9})(|B|K|KB|KIB)"
_TEXT = re.compile(rf"{_AMOUNT}(?:\.\.{_AMOUNT}(?::{_AMOUNT})?)?", re.IGNORECASE)


def amounts(texts: Sequence[str], option: str, step: int) -> tuple[int, ...]:
    """The amounts that texts name, in their order and each once.

    A text is an amount, `LOW..HIGH` or `LOW..HIGH:STEP`; K is 1024. A range holds its ends, and
    between them the multiples of the step.

    Args:
        texts: the values of an option, each a list joined by commas.
        option: its name, for messages.
        step: the step of a range that states none.

    Raises:
        UsageError: for another form, a range that falls, or too many amounts.
    """
    words = [word for text in texts for word in text.split(",") if word]
    listed = [amount for word in words for amount in _amounts(word.strip(), option, step)]
    if not listed or len(listed) > MOST:
        raise UsageError(f"{option} names {len(listed)} amounts; give 1 to {MOST}")
    return tuple(dict.fromkeys(listed))


def _amounts(word: str, option: str, step: int) -> Sequence[int]:
    match = _TEXT.fullmatch(word)
    if match is None:
        raise UsageError(
            f"{option} is {word!r}; give an amount, such as 256 or 48K, or a range, such as "
            "64..1024 or 0..96K:8K"
        )
    low = _bytes(match[1], match[2])
    if match[3] is None:
        return (low,)
    high = _bytes(match[3], match[4])
    stated = step if match[5] is None else _bytes(match[5], match[6])
    if high < low or stated < 1:
        raise UsageError(f"{option} is {word!r}; give the smaller end first and a step above 0")
    first = (low // stated + 1) * stated
    if (high - low) // stated > MOST:
        raise UsageError(f"{option} is {word!r}: {(high - low) // stated} amounts; at most {MOST}")
    return (low, *range(first, high, stated), *([high] if high > low else []))


def _bytes(number: str, unit: str) -> int:
    return int(number) * _UNITS[unit.upper()]
