"""Checks of a user kernel that ask the compiler: the call's arguments, and mistakes of the source.

The compiler reports the signature, which the arguments of a call have to fit.

A source that overrides a tuned macro is one kernel under many names. A variable that nobody fills
counts as zeros, and a result of zeros is verified like any other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program, sections
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Template, override
from autotune.records.kernel_record import KernelSource
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.definition import UserKernel

OTHER, FLOATING, WHOLE, POINTER = range(4)
WORDS = {OTHER: "a value", FLOATING: "a floating-point number", WHOLE: "a whole number"}

# `Signature` is declared but never defined. The compiler's error message names the instance that it
# misses, and so the parameters' types, each as a number (see `ParameterType`).
QUERY = """
namespace autotune_signature {{
template <typename T> struct Plain {{ static const int kind = 0, size = sizeof(T); }};
template <> struct Plain<void> {{ static const int kind = 0, size = 0; }};
template <typename T> struct Plain<const T> : Plain<T> {{}};
template <typename T> struct Plain<volatile T> : Plain<T> {{}};
template <typename T> struct Plain<const volatile T> : Plain<T> {{}};
#define AUTOTUNE_PLAIN(TYPE, KIND) \\
    template <> struct Plain<TYPE> {{ static const int kind = KIND, size = sizeof(TYPE); }};
AUTOTUNE_PLAIN(float, 1) AUTOTUNE_PLAIN(double, 1) AUTOTUNE_PLAIN(bool, 2) AUTOTUNE_PLAIN(char, 2)
AUTOTUNE_PLAIN(signed char, 2) AUTOTUNE_PLAIN(unsigned char, 2) AUTOTUNE_PLAIN(short, 2)
AUTOTUNE_PLAIN(unsigned short, 2) AUTOTUNE_PLAIN(int, 2) AUTOTUNE_PLAIN(unsigned, 2)
AUTOTUNE_PLAIN(long, 2) AUTOTUNE_PLAIN(unsigned long, 2) AUTOTUNE_PLAIN(long long, 2)
AUTOTUNE_PLAIN(unsigned long long, 2)
template <typename T> struct ParameterType {{
    static const long long facts = Plain<T>::kind * 1000000LL + Plain<T>::size;
}};
template <typename T> struct ParameterType<T*> {{
    static const long long facts = 3000000LL + Plain<T>::kind * 100000LL + Plain<T>::size;
}};
template <long long... Facts> struct Signature;
template <typename... P> Signature<ParameterType<P>::facts...> of(void (*)(P...));
static const int size = sizeof(of({address}));
}}
"""
_INSTANCE = re.compile(r"autotune_signature::Signature<([^>]*)>")


@dataclass(frozen=True)
class ParameterType:
    """The type of a kernel's parameter.

    Attributes:
        pointer: whether it is a pointer; the rest then describes what it points to.
        kind: OTHER, FLOATING or WHOLE.
        size: bytes; 0 for void.
    """

    pointer: bool
    kind: int
    size: int

    @classmethod
    def of(cls, facts: int) -> ParameterType:
        """The type that a number in the compiler's message stands for."""
        first, rest = divmod(facts, 1_000_000)
        return cls(True, *divmod(rest, 100_000)) if first == POINTER else cls(False, first, rest)

    def __str__(self) -> str:
        value = f"{WORDS[self.kind]} of {self.size} bytes"
        if not self.pointer:
            return value
        return f"a pointer to {value}" if self.size else "a pointer"


def check_signature(
    kernel: UserKernel,
    config: Config,
    arguments: Sequence[object],
    arch: str,
    places: tuple[Path, tuple[Path, ...]],
) -> None:
    """Refuses arguments that an instance of the kernel does not take.

    `places` are the folder of the source and the folders of headers (`unpacked`).

    An instance that does not compile is not checked: its trial reports the compiler's message.

    Raises:
        UsageError: for another number of arguments, or another type of one of them.
        MissingError: without a compiler.
    """
    parameters = _parameter_types(kernel, config, arch, places)
    if parameters is None:
        return
    if len(parameters) != len(arguments):
        raise UsageError(
            f"{kernel.name} takes {len(parameters)} arguments ({', '.join(map(str, parameters))}), "
            f"{len(arguments)} are given"
        )
    for place, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True)):
        assert isinstance(argument, np.ndarray | np.generic)
        if not _fits(argument, parameter):
            array = "an array of " if isinstance(argument, np.ndarray) else ""
            dtype = argument.dtype
            raise UsageError(
                f"argument {place} is {array}{dtype.name} ({dtype.itemsize} bytes); "
                f"{kernel.name} takes {parameter} there; give the NumPy type of that"
            )


def _parameter_types(
    kernel: UserKernel, config: Config, arch: str, places: tuple[Path, tuple[Path, ...]]
) -> list[ParameterType] | None:
    """The parameters of an instance; None if it does not compile."""
    template, (folder, folders) = kernel.template(config), places
    query = QUERY.format(address=template.address)
    path = folder / kernel.source.file
    file = path.with_name(f"signature-of-{path.name}")
    file.write_text(f"{kernel.source.text}\n{query}", encoding="utf-8")
    asking = replace(template, source=file.relative_to(folder).as_posix())
    outcome = compiler.compile(asking, arch, cache=None, sources=folder, includes=folders)
    match = _INSTANCE.search(outcome.log)
    if match is None:
        return None
    return [ParameterType.of(int(facts)) for facts in re.findall(r"-?\d+", match[1])]


def _fits(argument: np.ndarray | np.generic, parameter: ParameterType) -> bool:
    """Whether a NumPy array or number fits a parameter. Pointers to types that NumPy lacks, such as
    vectors and structures, fit every array."""
    size, kind = argument.dtype.itemsize, FLOATING if argument.dtype.kind in "fc" else WHOLE
    if isinstance(argument, np.ndarray) != parameter.pointer:
        return False
    if parameter.kind == OTHER:
        return parameter.pointer or size == parameter.size
    if argument.dtype.kind == "c":
        size //= 2
    bytewise = parameter.pointer and parameter.size == 1
    return bytewise or (kind == parameter.kind and size == parameter.size)


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
        ptx = compiler.ptx(
            template, program.arch, sources=folder, includes=includes, symbol=program.symbol
        )
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
    """The C++ names of the `__constant__` variables that a kernel reads and no initialiser fills.

    The host fills them by their symbols before a launch; a launch that has only arguments leaves
    them at zero. A kernel cannot write constant memory, so naming such a variable is reading it.
    """
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
