"""Finds, in PTX, the variables of a module that a kernel reads and nothing fills.

The host fills `__constant__` and `__device__` variables by their symbols before a launch. A launch
that has only arguments leaves those without an initialiser at zero. A kernel cannot write constant
memory, so naming such a variable is reading it. A global variable counts only where its address
reaches nothing but loads: whatever else it reaches may be a store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SECTIONS = frozenset({".nv.constant3", ".nv.global"})
"""The sections of a cubin that have such variables, among others."""

_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.(?:loc|file)\b[^\n]*", re.DOTALL | re.MULTILINE)
_VARIABLE = re.compile(
    r"^[ \t]*(?:\.(?:visible|weak|extern|common)\s+)*\.(const|global)\b([^;={]*?)"
    r"([\w$]+)\s*(?:\[\d*\]\s*)*(=[^;]*)?;",
    re.MULTILINE,
)
_FUNCTION = re.compile(r"\.(?:entry|func)\b\s*(?:\([^)]*\)\s*)?([\w$]+)[^;{]*\{")
_WORD = re.compile(r"%?[\w$]+")
# The instruction, its first operand and the others, after labels and a predicate.
_STATEMENT = re.compile(
    r"^(?:[{}\s]|[\w$]+:|@!?%\w+\s)*([a-z]\w*)[\w.:]*\s*(\{[^}]*\}|[^,]*)(.*)$", re.DOTALL
)
# Instructions whose result is an address if an operand is.
_ADDRESSES = frozenset(
    {"mov", "cvta", "cvt", "add", "sub", "mad", "mul", "shl", "shr", "and", "or", "xor", "selp"}
)
# Instructions that store nothing at an address; any other may.
_HARMLESS = frozenset({"ld", "ldu", "setp", "isspacep", "prefetch"})


@dataclass(frozen=True)
class Variable:
    """A variable of a module: its C++ qualifier and its name, such as `filters::weights`."""

    qualifier: str
    name: str

    def __str__(self) -> str:
        return f"{self.qualifier} {self.name}"


def unfilled(ptx: str, symbol: str) -> list[Variable]:
    """The variables that a kernel reads and that neither an initialiser nor the kernel fills."""
    text = _COMMENTS.sub("", ptx)
    functions = dict(_functions(text))
    declared = {match[3]: match for match in _VARIABLE.finditer(text)}
    initialisers = {name: match[4] for name, match in declared.items() if match[4]}
    reached = _reached(symbol, {**functions, **initialisers})
    bodies = [body for name, body in functions.items() if name in reached]
    shared = {word for name in initialisers for word in _WORD.findall(initialisers[name])}
    return [
        Variable(_qualifier(match), readable(name))
        for name, match in declared.items()
        if name in reached and name not in initialisers
        if match[1] == "const" or (name not in shared and _only_read(name, bodies))
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


def _qualifier(declaration: re.Match[str]) -> str:
    if declaration[1] == "const":
        return "__constant__"
    return "__managed__" if ".managed" in declaration[2] else "__device__"


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


def _only_read(name: str, bodies: list[str]) -> bool:
    """Whether every function that names a variable only loads from it."""
    return all(_reads(name, body) for body in bodies if name in _WORD.findall(body))


def _reads(name: str, body: str) -> bool:
    statements = [
        (match[1], {*_WORD.findall(match[2])}, {*_WORD.findall(match[3])})
        for match in map(_STATEMENT.match, body.split(";"))
        if match is not None
    ]
    addresses, before = {name}, 0
    while len(addresses) > before:
        before = len(addresses)
        for operation, target, sources in statements:
            if operation in _ADDRESSES:
                addresses |= target if addresses & sources else set()
            elif operation not in _HARMLESS and addresses & (target | sources):
                return False
    return True
