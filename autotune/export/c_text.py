"""C text: comments, strings, rows of numbers and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable

from autotune.files.decoding import visible

# A backslash before a line's end, or its trigraph, goes on to the next line.
_CONTINUED = re.compile(r"(\\|\?\?/)\s*$")


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


def comment(*lines: str) -> str:
    """A C comment of some lines, which nothing in them ends or continues."""
    return "/* " + "\n * ".join(map(comment_text, lines)) + " */"


def line_comments(*lines: str) -> str:
    """C++ comments, one for each line, which nothing in the lines ends or continues."""
    return "\n".join(f"// {comment_text(line)}".rstrip() for line in lines)


def comment_text(text: str) -> str:
    """A text as it may stand within a line of a comment, of either kind."""
    plain = visible(text).replace("*/", "* /").replace("/*", "/ *")
    return _CONTINUED.sub(r"\1.", plain)
