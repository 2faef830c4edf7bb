"""Constants as C text: strings, rows of numbers and tables."""

from __future__ import annotations

from collections.abc import Iterable


def table(kind: str, name: str, rows: Iterable[str]) -> str:
    """A constant array. C has no empty arrays, so an empty one gets one element of zeros."""
    lines = ",\n".join(f"    {row}" for row in rows)
    if not lines:
        return f"static const {kind} {name}[1] = NO_ROWS;"
    return f"static const {kind} {name}[] = {{\n{lines}}};"


def numbers(*values: int) -> str:
    """Numbers of a row."""
    return ", ".join(map(str, values))


def c_string(text: str) -> str:
    """A C string literal; bytes other than plain ASCII are octal escapes."""
    plain = (
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return '"' + "".join(plain) + '"'
