"""Checks of a user kernel that ask the compiler: the call's arguments, and its variables.

The compiler reports the signature, which the arguments of a call have to fit. A variable that
nobody fills counts as zeros, and a result of zeros is verified like any other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program
from autotune.cuda.symbols import constants, unfilled
from autotune.cuda.textures import Texture
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.records.kernel_record import KernelSource
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.results import Array

Places = tuple[Path, tuple[Path, ...]]
"""The folder of a source, and the folders of headers (`unpacked`)."""

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
template <typename T> struct Element {{ typedef T type; }};
template <typename T, size_t N> struct Element<T[N]> : Element<T> {{}};
template <int Place, long long Facts, long long Size> struct Variable;
{variables}
}}
"""

_VARIABLE_QUERY = """
static const int size{place} = sizeof(
    Variable<{place}, ParameterType<Element<decltype(::{name})>::type*>::facts, sizeof(::{name})>);
"""

_INSTANCE = re.compile(r"autotune_signature::Signature<([^>]*)>")

_VARIABLE_INSTANCE = re.compile(r"autotune_signature::Variable<(\d+), (\d+)L*, (\d+)L*>")


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
    places: Places,
    contents: Mapping[str, Array],
) -> None:
    """Refuses arguments that an instance of the kernel does not take, and contents that do not fit
    their `__constant__` variable.

    An instance that does not compile is not checked: its trial reports the compiler's message.

    Raises:
        UsageError: for another number of arguments, or another type of one of them.
        MissingError: without a compiler.
    """
    log = _answer(kernel, config, arch, places, tuple(contents))
    for place, facts, size in _VARIABLE_INSTANCE.findall(log):
        name, array = [*contents.items()][int(place)]
        element = ParameterType.of(int(facts))
        wanted = f"the variable holds {replace(element, pointer=False)}"
        _check_type(f"constant {name}", array, element, wanted)
        if array.nbytes > int(size):
            raise UsageError(
                f"constant {name} is given {array.nbytes} bytes, the variable has {size}"
            )
    if (match := _INSTANCE.search(log)) is None:
        return
    parameters = [ParameterType.of(int(facts)) for facts in re.findall(r"-?\d+", match[1])]
    if len(parameters) != len(arguments):
        raise UsageError(
            f"{kernel.name} takes {len(parameters)} arguments ({', '.join(map(str, parameters))}), "
            f"{len(arguments)} are given"
        )
    for place, (argument, parameter) in enumerate(zip(arguments, parameters, strict=True)):
        _check_type(
            f"argument {place}", argument, parameter, f"{kernel.name} takes {parameter} there"
        )


def _check_type(where: str, value: object, parameter: ParameterType, wanted: str) -> None:
    """Refuses an argument that does not fit a parameter, which is `wanted` in the message."""
    # A texture object is a handle of 64 bits.
    number = np.uint64() if isinstance(value, Texture) else value
    assert isinstance(number, np.ndarray | np.generic)
    if _fits(number, parameter):
        return
    dtype, array = number.dtype, "an array of " if isinstance(number, np.ndarray) else ""
    kind = "structures" if dtype.names else "a texture object" if number is not value else dtype
    raise UsageError(
        f"{where} is {array}{kind} ({dtype.itemsize} bytes); {wanted}; give the NumPy type of that"
        + (", such as numpy.dtype(fields, align=True)" if dtype.names else "")
    )


def _answer(
    kernel: UserKernel, config: Config, arch: str, places: Places, names: Sequence[str]
) -> str:
    template, (folder, folders) = kernel.template(config), places
    variables = "".join(
        _VARIABLE_QUERY.format(place=place, name=name) for place, name in enumerate(names)
    )
    query = QUERY.format(address=template.address, variables=variables)
    path = folder / kernel.source.file
    file = path.with_name(f"signature-of-{path.name}")
    file.write_text(f"{kernel.source.text}\n{query}", encoding="utf-8")
    asking = replace(template, source=file.relative_to(folder).as_posix())
    return compiler.compile(asking, arch, cache=None, sources=folder, includes=folders).log


def _fits(argument: np.ndarray | np.generic, parameter: ParameterType) -> bool:
    """Whether a NumPy array or number fits a parameter. Pointers to vectors and structures fit
    every array of numbers, and arrays of structures of their size."""
    dtype, pointer = argument.dtype, parameter.pointer
    size, kind = dtype.itemsize, FLOATING if dtype.kind in "fc" else WHOLE
    if isinstance(argument, np.ndarray) != pointer:
        return False
    if parameter.kind == OTHER:
        whole = pointer and (dtype.names is None or not parameter.size)
        return whole or size == parameter.size
    if pointer and parameter.size == 1:
        return True
    if dtype.kind == "V" or (dtype.kind == "c" and not pointer):
        return False
    if dtype.kind == "c":
        size //= 2
    return kind == parameter.kind and size == parameter.size


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)

_DECLARED = re.compile(r"\b__constant__\b[^;={]*?(\w+)\s*(?:\[[^]]*\]\s*)*[;={,]")

_INITIALISED = r"\b__constant__\b[^;{{}}]*\b{name}\s*(?:\[[^]]*\]\s*)*(?:=(?!=)|\{{)"


def check_variables(
    program: Program, source: KernelSource, places: Places, filled: Collection[str]
) -> None:
    """Refuses a kernel that reads a variable which nothing fills, and a `filled` name that is no
    variable of the source.

    An explicit initialiser of zeros looks like none to the compiler, so that the text decides.

    Raises:
        UsageError: for such a variable.
    """
    kernel, texts = program.template.kernel, [_COMMENT.sub("", text) for _, text in source.files]
    names = {variable.name for variable in constants(program.cubin)}
    declared = {name for text in texts for name in _DECLARED.findall(text)}
    for name in filled:
        if name not in names and name.rpartition("::")[2] not in declared:
            listed = ", ".join(sorted(names | declared)) or "none"
            raise UsageError(f"the source of {kernel} has no __constant__ {name}; it has {listed}")

    def initialised(name: str) -> bool:
        pattern = re.compile(_INITIALISED.format(name=re.escape(name.rpartition("::")[2])))
        return any(map(pattern.search, texts))

    missing = {name for name in names if name not in filled and not initialised(name)}
    if not missing:
        return
    folder, includes = places
    ptx = compiler.ptx(
        program.template, program.arch, sources=folder, includes=includes, symbol=program.symbol
    )
    for name in [] if isinstance(ptx, CompileFailure) else unfilled(ptx, program.symbol):
        if name in missing:
            raise UsageError(
                f"{kernel} reads __constant__ {name}, which nothing fills before a launch, so that "
                f'it would count as zeros; give its contents, constants={{"{name}": array}}, or '
                "initialise it in the source"
            )
