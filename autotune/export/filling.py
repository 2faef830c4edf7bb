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
    fields = {"VERSION": __version__, "NAME": name, "UPPER": name.upper()}
    for field, value in fields.items():
        text = text.replace(f"@{field}@", value)
    for own, new in ((_TEMPLATE_NAME, name), (_TEMPLATE_NAME.upper(), name.upper())):
        text = re.sub(rf"(?<![A-Za-z0-9_]){own}(?=_|(?![A-Za-z0-9_]))", new, text)
    for part, content in parts.items():
        if not content:
            text = re.sub(rf"^[ ]*/\* @{part}@ \*/\n+", "", text, flags=re.MULTILINE)
        text = text.replace(f"/* @{part}@ */", content).replace(f"@{part}@", content)
    return text


def _text(template: str) -> str:
    source = resources.files("autotune.export") / "templates" / template
    return source.read_text(encoding="utf-8").rstrip("\n") + "\n"
