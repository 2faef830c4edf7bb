"""Compilers that refuse a mistake of the source which would otherwise go unnoticed.

A source that overrides a tuned macro is one kernel under many names. A variable that nobody fills
counts as zeros, and a result of zeros is verified like any other.
"""

from __future__ import annotations

import re
from pathlib import Path

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program, sections
from autotune.cuda.variables import SECTION, unfilled
from autotune.errors import UsageError
from autotune.families.macros import override
from autotune.families.plan import Template
from autotune.records.kernel_source import KernelSource
from autotune.tuning.evaluate import Compile

Places = tuple[Path, tuple[Path, ...]]
"""The folder of a source, and the folders of headers."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_INITIALISED = (
    r"\b__(?:constant|device|managed)__\b[^;{{}}]*\b{name}\s*(?:\[[^]]*\]\s*)*(?:=(?!=)|\{{)"
)


def macros_kept(compile: Compile) -> Compile:
    """A compiler that raises a `UsageError` if the source changes a tuned macro."""

    def compiled(template: Template, arch: str) -> Program | CompileFailure:
        outcome = compile(template, arch)
        if isinstance(outcome, CompileFailure) and (change := override(outcome.log)):
            raise UsageError(
                f"{template.kernel}: {change}; take its #define and #undef out of the source, or "
                "put the #define between #ifndef and #endif"
            )
        return outcome

    return compiled


def variables_filled(compile: Compile, source: KernelSource, places: Places) -> Compile:
    """A compiler that raises a `UsageError` if the kernel reads a variable which nothing fills.

    An explicit initialiser of zeros looks like none to the compiler, so that the text decides.
    """
    texts = [_COMMENT.sub("", text) for _, text in source.files]

    def initialised(name: str) -> bool:
        pattern = re.compile(_INITIALISED.format(name=re.escape(name.rpartition("::")[2])))
        return any(map(pattern.search, texts))

    def compiled(template: Template, arch: str) -> Program | CompileFailure:
        program = compile(template, arch)
        if isinstance(program, CompileFailure) or SECTION not in sections(program.cubin):
            return program
        folder, includes = places
        ptx = compiler.ptx(template, program.arch, sources=folder, includes=includes)
        text = "" if isinstance(ptx, CompileFailure) else ptx.decode(errors="replace")
        for name in unfilled(text, program.symbol):
            if not initialised(name):
                raise UsageError(
                    f"{template.kernel} reads __constant__ {name}, which nothing fills before a "
                    "launch, so that it would count as zeros; pass it as an argument (an array as "
                    "a pointer), or initialise it in the source"
                )
        return program

    return compiled
