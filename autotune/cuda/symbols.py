"""The `__constant__` variables of compiled code, by their names in C++.

The symbol table of the ELF file has each variable's mangled name, section and size. PTX has each
item at the start of a line, and tells which variables a kernel names.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from autotune.cuda.program import Program, sections

if TYPE_CHECKING:
    from numpy.typing import NDArray

CONSTANTS = ".nv.constant3"
"""The section of the variables; the compiler's own constants are in it too."""

_OBJECT = 1  # STT_OBJECT of ELF
_ENTRY = struct.Struct("<IBBHQQ")


class Variable(NamedTuple):
    """A variable of a cubin: its name in C++, its symbol and its size in bytes."""

    name: str
    symbol: str
    size: int


def constants(cubin: bytes) -> list[Variable]:
    """The `__constant__` variables of a cubin; none of other data."""
    parts = sections(cubin)
    if CONSTANTS not in parts:
        return []
    names, section = parts[".strtab"], [*parts].index(CONSTANTS)
    variables = []
    for name, info, _, place, _, size in _ENTRY.iter_unpack(parts[".symtab"]):
        if (info & 0xF, place) == (_OBJECT, section):
            symbol = names[name : names.index(b"\0", name)].decode()
            variables.append(Variable(readable(symbol), symbol, size))
    return variables


def readable(symbol: str) -> str:
    """The C++ name of a variable from its symbol, without template arguments and the namespaces
    that compilers add."""
    names = [name for name in _identifiers(symbol) if not name.startswith(_UNNAMED)]
    return "::".join(names) or symbol


_UNNAMED = "_INTERNAL_", "_GLOBAL_"
"""The first letters of namespaces that compilers add, whose names vary between compilations."""


def _identifiers(symbol: str) -> list[str]:
    """The names at the front of a symbol; the Itanium C++ ABI writes each as its length and its
    text."""
    names, at = [], 2
    while symbol.startswith("_Z") and (match := re.compile(r"[NL]*(\d+)").match(symbol, at)):
        at = match.end() + int(match[1])
        names.append(symbol[match.end() : at])
    return names


def as_in_cubin(ptx: bytes, symbol: str) -> bytes:
    """PTX with the names of unnamed namespaces as in a kernel's symbol of a cubin."""

    def unnamed(symbol: str) -> list[bytes]:
        names = [name for name in _identifiers(symbol) if name.startswith(_UNNAMED)]
        return [f"{len(name)}{name}".encode() for name in names]

    wanted = unnamed(symbol)
    for entry in re.findall(rb"\.entry\s+([\w$]+)", ptx):
        if len(own := unnamed(entry.decode())) == len(wanted):
            for name, replacement in zip(own, wanted, strict=True):
                ptx = ptx.replace(name, replacement)
    return ptx


_COMMENTS = re.compile(r"//[^\n]*|^\s*\.(?:loc|file)\b[^\n]*", re.MULTILINE)
_ITEM = re.compile(
    r"^[ \t]*(?=\.(?:visible|weak|extern|common|const|global|entry|func|section)\b)", re.MULTILINE
)
_HEAD = re.compile(
    r"(?:\.(?:visible|weak|extern|common)\s+)*\.(const|global|entry|func)\b(?:\s*\([^)]*\))?"
    r"[^;={(\[]*?([\w$]+)\s*[\[;=({]"
)


def unfilled(ptx: bytes, symbol: str) -> list[str]:
    """The C++ names of the `__constant__` variables that a kernel reads, directly or through
    functions and other variables, and that no initialiser fills.

    A kernel cannot write constant memory, so naming such a variable is reading it.
    """
    pieces = _ITEM.split(_COMMENTS.sub("", ptx.decode(errors="replace")))
    heads = [(match, piece) for piece in pieces if (match := _HEAD.match(piece))]
    items = {match[2]: piece for match, piece in heads}
    reached, pending = set[str](), [symbol]
    while pending:
        if (name := pending.pop()) in items and name not in reached:
            reached.add(name)
            pending += re.findall(r"%?[\w$]+", items[name])
    return [
        readable(match[2])
        for match, piece in heads
        if match[1] == "const" and match[2] in reached and "=" not in piece
    ]


def placed(
    program: Program, contents: Mapping[str, NDArray[Any]]
) -> list[tuple[str, NDArray[Any]]]:
    """The contents of variables, given by their names in C++, by the symbols of a program.

    A variable may be larger than its contents. One that the compiler left out takes none.

    Raises:
        ValueError: for contents larger than the variable.
    """
    pairs = []
    for name, symbol, size in constants(program.cubin) if contents else ():
        if (array := contents.get(name)) is None:
            continue
        if array.nbytes > size:
            raise ValueError(
                f"constant {name} is given {array.nbytes} bytes, the variable has {size}"
            )
        pairs.append((symbol, array))
    return pairs
