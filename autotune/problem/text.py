"""The text form of a problem, such as `512x512x64:bf16:nt:batch=8:bias_relu:out=f32`.

Fields of 8-bit precisions follow the epilogue: `512x512x64:f8:nt:scale=row:fast:out=f16`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import cast

from autotune.errors import ProblemError
from autotune.problem.aliases import COMPUTE_ALIASES, OUTPUT_ALIASES
from autotune.problem.fields import VALUES, ProblemFields

# Python refuses to read numbers of thousands of digits.
_SHAPE = re.compile(r"(-?\d{1,99})x(-?\d{1,99})x(-?\d{1,99})")
_BATCH = re.compile(r"batch=(-?\d{1,99})")
_NAMED = re.compile(r"(out|scale|e5m2)=(\w{1,99})")
_NAMES = {"out": "output", "scale": "scale", "e5m2": "e5m2"}
# A text names some fields, as `f32` alone is a compute and `none` an epilogue.
_FIELDS = {
    word: name for name, words in VALUES.items() if name not in _NAMES.values() for word in words
}
_FIELDS |= dict.fromkeys(COMPUTE_ALIASES, "compute")


def parse(text: str) -> tuple[tuple[int, int, int], ProblemFields]:
    """The sizes of a problem's text, and the fields that it states.

    Raises:
        ProblemError: if the text has another form, or states a field twice.
    """
    shape, *parts = text.strip().lower().split(":")
    match = _SHAPE.fullmatch(shape)
    if match is None:
        raise ProblemError(f"malformed shape {text!r}; give MxNxK, such as 4096x4096x4096")
    stated: dict[str, str] = {}
    for part in parts:
        name, value = _field(part)
        if stated.setdefault(name, value) != value:
            raise ProblemError(f"{text!r} says {stated[name]} and {value}; give one {name}")
    fields = cast("ProblemFields", stated)
    if "batch" in stated:
        fields["batch"] = int(stated["batch"])
    m, n, k = map(int, match.groups())
    return (m, n, k), fields


def _field(part: str) -> tuple[str, str]:
    """The field that a part of the text states, and its value."""
    if match := _BATCH.fullmatch(part):
        return "batch", match[1]
    if match := _NAMED.fullmatch(part):
        return _NAMES[match[1]], OUTPUT_ALIASES.get(match[2], match[2])
    if part not in _FIELDS:
        words = ", ".join(word for word in _FIELDS if word not in COMPUTE_ALIASES)
        raise ProblemError(
            f"unknown {part!r} after the shape; give {words}, batch=8, scale=row, e5m2=b or out=f32"
        )
    return _FIELDS[part], COMPUTE_ALIASES.get(part, part)


def continued(begun: str) -> list[str]:
    """The texts that `begun` becomes when its last word is finished; none without a colon.

    Fields that the text states already are left out.
    """
    head, colon, last = begun.rpartition(":")
    if not colon:
        return []
    stated = set()
    for part in head.lower().split(":")[1:]:
        with suppress(ProblemError):
            stated.add(_field(part)[0])
    words = {word: name for word, name in _FIELDS.items() if word not in COMPUTE_ALIASES}
    words |= {f"{label}={word}": name for label, name in _NAMES.items() for word in VALUES[name]}
    words["batch="] = "batch"
    return [
        f"{head}:{word}"
        for word, name in words.items()
        if name not in stated and word.startswith(last.lower())
    ]
