"""The `__constant__` variables of a cubin, by their names in C++.

The symbol table of the ELF file has each variable's mangled name, section and size.
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
    that compilers add; the Itanium C++ ABI writes an identifier as its length and its text."""
    if not symbol.startswith("_Z"):
        return symbol
    parts, at = [], 2
    while match := re.compile(r"[NL]*(\d+)").match(symbol, at):
        at = match.end() + int(match[1])
        parts.append(symbol[match.end() : at])
    names = [part for part in parts if not part.startswith(("_INTERNAL_", "_GLOBAL_"))]
    return "::".join(names) or symbol


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
