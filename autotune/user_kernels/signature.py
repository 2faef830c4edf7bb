"""Whether a kernel takes the arguments that it is given, as its compiler sees them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from autotune import compiler
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.user_kernels.definition import UserKernel

OTHER, FLOATING, WHOLE, POINTER = range(4)
WORDS = {OTHER: "a value", FLOATING: "a floating-point number", WHOLE: "a whole number"}

# A type that is declared and not defined: the compiler says which one it misses, and so tells what
# the parameters are, in numbers of four parts (see `ParameterType`).
QUESTION = """
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
static const int size = sizeof(of(&{expression}));
}}
"""
_ANSWER = re.compile(r"autotune_signature::Signature<([^>]*)>")


@dataclass(frozen=True)
class ParameterType:
    """A parameter of a kernel: its kind and size in bytes, or of a pointer what it points to."""

    pointer: bool
    kind: int
    size: int

    @classmethod
    def of(cls, facts: int) -> ParameterType:
        """Reads the number of a parameter."""
        first, rest = divmod(facts, 1_000_000)
        return cls(True, *divmod(rest, 100_000)) if first == POINTER else cls(False, first, rest)

    def __str__(self) -> str:
        what = f"{WORDS[self.kind]} of {self.size} bytes"
        if not self.pointer:
            return what
        return f"a pointer to {what}" if self.size else "a pointer"


def check_signature(
    kernel: UserKernel, config: Config, arguments: Sequence[object], arch: str, folder: Path
) -> None:
    """Refuses arguments that an instance of the kernel does not take.

    An instance that does not compile says nothing; it is left to those who try it.

    Raises:
        UsageError: for another number of arguments, or another type of one of them.
        MissingError: without a compiler.
    """
    taken = _parameter_types(kernel, config, arch, folder)
    if taken is None:
        return
    if len(taken) != len(arguments):
        raise UsageError(
            f"{kernel.name} takes {len(taken)} arguments ({', '.join(map(str, taken))}), "
            f"{len(arguments)} are given"
        )
    for place, (given, one) in enumerate(zip(arguments, taken, strict=True)):
        assert isinstance(given, np.ndarray | np.generic)
        if not _fits(given, one):
            array = "an array of " if isinstance(given, np.ndarray) else ""
            raise UsageError(
                f"argument {place} is {array}{given.dtype.name} ({given.dtype.itemsize} bytes); "
                f"{kernel.name} takes {one} there; give the NumPy type of that"
            )


def _parameter_types(
    kernel: UserKernel, config: Config, arch: str, folder: Path
) -> list[ParameterType] | None:
    template = kernel.template(config)
    question = QUESTION.format(expression=template.expression)
    asking = f"signature-of-{kernel.file}"
    (folder / asking).write_text(f"{kernel.text}\n{question}", encoding="utf-8")
    answer = compiler.compile(
        replace(template, source=asking), arch, cache=None, sources=folder, includes=kernel.includes
    )
    match = _ANSWER.search(answer.log)
    if match is None:
        return None
    return [ParameterType.of(int(facts)) for facts in re.findall(r"-?\d+", match[1])]


def _fits(given: np.ndarray | np.generic, taken: ParameterType) -> bool:
    """Whether the kernel can take a NumPy array or number there; what it may read in it besides
    what NumPy has, such as vectors and structures, is left to it."""
    size, kind = given.dtype.itemsize, FLOATING if given.dtype.kind in "fc" else WHOLE
    if isinstance(given, np.ndarray) != taken.pointer:
        return False
    if taken.kind == OTHER:
        return taken.pointer or size == taken.size
    if given.dtype.kind == "c":
        size //= 2
    bytewise = taken.pointer and taken.size == 1
    return bytewise or (kind == taken.kind and size == taken.size)
