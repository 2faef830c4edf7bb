"""PTX of exported kernels, which the driver compiles for GPUs newer than their cubins."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError, UsageError

Ptx = Callable[[Program], bytes | CompileFailure]
"""Compiles a program's template to PTX."""

_ANY_LATER = re.compile(rb"^\s*\.target\s+sm_\d+\s*(,|$)", re.MULTILINE)
"""The target of PTX that later GPUs run. `sm_90a` and `sm_100f` are for one GPU or family."""


def portable_ptx(programs: Iterable[Program], compile: Ptx) -> dict[str, bytes]:
    """The PTX of those programs that later GPUs can run, by their keys.

    Raises:
        AutotuneError: if a template does not compile.
    """
    texts = {
        program.key: ptx_of(program, compile)
        for program in programs
        if not program.template.specific
    }
    return {key: text for key, text in texts.items() if _ANY_LATER.search(text)}


def ptx_of(program: Program, compile: Ptx) -> bytes:
    """The PTX of a program.

    Raises:
        AutotuneError: if it does not compile.
    """
    text = compile(program)
    if isinstance(text, CompileFailure):
        label = program.template.label
        raise AutotuneError(f"{label} gives no PTX for {program.arch}: {text.reason}")
    return text


def ptx_file(cubin: str) -> str:
    """The name of a kernel's PTX beside that of its cubin."""
    return f"{cubin.removesuffix('.cubin')}.ptx"


def check_ptx(format: str, ptx: bool) -> None:
    """Refuses PTX beside a format without machine code.

    Raises:
        UsageError: with the formats that take it.
    """
    if ptx and format not in ("c", "cubin"):
        raise UsageError(f"format {format!r} takes no PTX; give c or cubin")
