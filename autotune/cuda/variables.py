"""Finds, in PTX, the `__constant__` variables that a kernel reads and nothing fills.

The host fills them by their symbols before a launch. A launch that has only arguments leaves those
without an initialiser at zero. A kernel cannot write constant memory, so naming such a variable is
reading it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

SECTION = ".nv.constant3"
"""The section of a cubin that has such variables, among others."""

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak|extern|common)\s+)*\.(const|global)\b[^;={]*?"
    r"([\w$]+)\s*(?:\[\d*\]\s*)*(=[^;]*)?;",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)[^;{]*\{")
_WORD = re.compile(r"%?[\w$]+")


def unfilled(ptx: str, symbol: str) -> list[str]:
    """The C++ names of the constants that a kernel reads and that no initialiser fills."""
    text = _COMMENTS.sub("", ptx)
    declared = {match[2]: match for match in _VARIABLE.finditer(text)}
    initialisers = {name: match[3] for name, match in declared.items() if match[3]}
    reached = _reached(symbol, {**dict(_functions(text)), **initialisers})
    return [
        readable(name)
        for name, match in declared.items()
        if match[1] == "const" and name in reached and name not in initialisers
    ]


def readable(symbol: str) -> str:
    """The C++ name of a variable from its symbol, without template arguments and the namespaces
    that compilers add; the Itanium C++ ABI writes an identifier as its length and its text."""
    if not symbol.startswith("_Z"):
        return symbol
    parts, at = [], 2
    while match := re.compile(r"[NL]*(\d+)").match(symbol, at):
        at = match.end() + int(match[1])
        parts.append(symbol[match.end() : at])
    names = [part for part in parts if not part.startswith(("_INTERNAL_", "_GLOBAL_"))]
    return "::".join(names) or symbol


def _functions(text: str) -> Iterator[tuple[str, str]]:
    """The body of each function by its symbol."""
    for match in _FUNCTION.finditer(text):
        depth, end = 1, match.end()
        for brace in re.compile(r"[{}]").finditer(text, end):
            depth, end = depth + (1 if brace[0] == "{" else -1), brace.end()
            if depth == 0:
                break
        yield match[1], text[match.end() : end]


def _reached(symbol: str, texts: Mapping[str, str]) -> set[str]:
    """The names that a function mentions, directly or through other functions and initialisers."""
    reached: set[str] = set()
    pending = [symbol]
    while pending:
        if (name := pending.pop()) not in reached:
            reached.add(name)
            pending += _WORD.findall(texts.get(name, ""))
    return reached
