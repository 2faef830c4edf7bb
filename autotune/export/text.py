"""Text of an export: its name, the C templates filled in, and C literals, comments and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib import resources

from autotune.errors import UsageError
from autotune.files.decoding import KEYWORDS, visible
from autotune.version import __version__

_TEMPLATE_NAME = "gemm"


def filled(template: str, name: str, **parts: str) -> str:
    """A template with the library's name and the contents of its parts.

    `gemm` becomes the name wherever a word is it or starts with it and an underscore.

    Args:
        template: the file.
        name: the library's name.
        parts: what replaces `/* @PART@ */` and `@PART@`, which are not renamed; nothing removes the
            line.
    """
    text = _text(template)
    for fragment in ("driver.c", "problems.c"):
        mark = fragment.removesuffix(".c").upper()
        text = text.replace(f"/* @{mark}@ */", _text(fragment).rstrip("\n"))
    for part, content in parts.items():
        if not content:
            text = re.sub(rf"^[ ]*/\* @{part}@ \*/\n+", "", text, flags=re.MULTILINE)
    upper = name.upper()
    words = {"VERSION": __version__, "NAME": name, "UPPER": upper, **parts}
    words["RELEASE"] = re.split(r"[^\d.]", __version__)[0]  # CMake takes numbers alone
    own = {_TEMPLATE_NAME: name, _TEMPLATE_NAME.upper(): upper}
    marks = "|".join(words)
    # One pass: what a mark is replaced by is not looked at again.
    word = rf"(?<![A-Za-z0-9_])({'|'.join(own)})(?=_|(?![A-Za-z0-9_]))"
    return re.sub(
        rf"/\* @({marks})@ \*/|@({marks})@|{word}",
        lambda match: own[match[3]] if match[3] else words[match[1] or match[2]],
        text,
    )


def _text(template: str) -> str:
    source = resources.files("autotune.export") / "templates" / template
    return source.read_text(encoding="utf-8").rstrip("\n") + "\n"


LONGEST_NAME = 40

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# CMake's own targets, the example, and headers that the library includes.
_RESERVED = frozenset(
    {"all", "clean", "help", "install", "package", "test", "main", "bench"}
    | {"dlfcn", "math", "pthread", "stddef", "stdint", "stdio", "stdlib", "string"}
)


def check_name(name: str) -> str:
    """The name, if C functions and files can be called so.

    Raises:
        UsageError: if they cannot.
    """
    fault = None
    if not _NAME.fullmatch(name):
        fault = "is no C identifier: letters, digits and underscores, a letter in front"
    elif name.lower() in _RESERVED:
        fault = "is taken, by CMake, the example or a header of C"
    elif name in KEYWORDS:
        fault = "is a word of C or C++"
    elif len(name) > LONGEST_NAME:
        fault = f"has {len(name)} characters; {LONGEST_NAME} at most"
    if fault is not None:
        raise UsageError(f"name {name!r} {fault}; give another, such as gemm")
    return name


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
