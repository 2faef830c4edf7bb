"""Parses the log of `ptxas -v`: entry functions, their resources, performance losses."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENTRY = "Compiling entry function '"
_FRAME = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
# `setmaxnreg` without effect (C7508); wgmma serialised throughout (C7510 and its neighbours) or in
# one place (C7517).
_LOSS = re.compile(
    r"Potential Performance Loss: (?P<lost>.*)|(?P<injected>wgmma\.wait_group is injected .*)"
)


@dataclass(frozen=True)
class Usage:
    """Resources of one entry function, as the fields of `Program` of the same names."""

    registers: int
    shared: int
    local: int
    spills: int
    barriers: int


def symbol(log: str, kernel: str) -> str | None:
    """The mangled name of `kernel`, which is given without template arguments.

    The Itanium C++ ABI writes an identifier as its length and its text. None if the log names no
    such entry function, or several.
    """
    name = kernel.rpartition("::")[2]
    mangled = re.compile(rf"(?<!\d){len(name)}{re.escape(name)}")
    entries = [part.partition("'")[0] for part in log.split(_ENTRY)[1:]]
    matches = [entry for entry in entries if entry == name or mangled.search(entry)]
    return matches[0] if len(matches) == 1 else None


def usage(log: str, symbol: str) -> Usage | None:
    """Resources of an entry function; None if the log does not state them."""
    section = log.partition(f"{_ENTRY}{symbol}'")[2].partition(_ENTRY)[0]
    frame = _FRAME.search(section)
    registers = re.search(r"Used (\d+) registers", section)
    if frame is None or registers is None:
        return None
    stack, stores, loads = (int(size) for size in frame.groups())
    return Usage(
        registers=int(registers[1]),
        shared=_number(r"(\d+) bytes smem", section, absent=0),
        # The frame is the entry function's own; the cumulative size includes its callees.
        local=_number(r"(\d+) bytes cumulative stack size", section, absent=stack),
        spills=stores + loads,
        barriers=_number(r"used (\d+) barriers", section, absent=0),
    )


def loss(log: str) -> str | None:
    """The performance loss that ptxas reports; None if it reports none."""
    match = _LOSS.search(log)
    return (match["lost"] or match["injected"]).strip() if match else None


def _number(pattern: str, text: str, *, absent: int) -> int:
    match = re.search(pattern, text)
    return int(match[1]) if match else absent
