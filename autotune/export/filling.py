"""The C templates, renamed and filled."""

from __future__ import annotations

import re
from importlib import resources

from autotune.version import __version__

_TEMPLATE_NAME = "gemm"


def fragment(template: str, name: str) -> str:
    """A part of a template, renamed, without its last line's end."""
    return filled(template, name).rstrip("\n")


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
