"""The definition of a user kernel: source, template parameters, constraints and geometry."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path
from typing import SupportsFloat, SupportsIndex

import numpy as np

from autotune.errors import UsageError, require_list
from autotune.families.config import Config, Value, value_of
from autotune.files.decoding import is_macro_name, is_word
from autotune.records.kernel_record import KernelSource
from autotune.user_kernels.geometry import Extents, ParameterValues, SharedBytes
from autotune.user_kernels.grids import Divisor, block_extents, grid_extents
from autotune.user_kernels.options import check_options
from autotune.user_kernels.sources import read_files, unpacked

Predicate = Callable[[ParameterValues], object]
"""Whether a combination of parameter values is allowed."""

# The search stores the index of a value in one byte, and enumerates all configurations.
MOST_VALUES, MOST = 256, 250_000
RESERVED = "family"
"""A parameter name that the search uses itself."""

_NAME = re.compile(r"\s*([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<(.*)>\s*)?", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")
_TOKENS = re.compile(r"[^,\s]([^,\n]{0,198}[^,\s])?")
LARGEST = 10**15


@dataclass(frozen=True)
class Compilation:
    """How a user kernel is compiled.

        autotune.tune_kernel(..., compile=autotune.Compilation(defines=True))

    Attributes:
        include: folders of headers. CUDA's own, such as `cuda_fp16.h`, are found by themselves.
        defines: whether the parameters are macros of the source instead of arguments of a template.
        options: further options of the compiler (NVRTC), such as `--use_fast_math`; none that sets
            a parameter, the device or folders of headers, or writes files.
    """

    include: Sequence[str | Path] = ()
    defines: bool = False
    options: Sequence[str] = ()


@dataclass(frozen=True)
class UserKernel:
    """A user's definition of a kernel, checked.

    Attributes:
        source: the CUDA C++ source with its headers, and how an instance is compiled.
        includes: folders to search for headers that the source does not hold.
        parameters: the values of each parameter, in the order of enumeration.
        constraints: predicates that the values have to fulfil, by a short reason.
        grid: blocks along x, y and z, or a function that returns them.
        block: threads along x, y and z, or a function that returns them.
        shared: bytes of dynamic shared memory, or a function that returns them.
    """

    source: KernelSource
    includes: tuple[Path, ...]
    parameters: Mapping[str, tuple[Value, ...]]
    constraints: Mapping[str, Predicate]
    grid: Extents
    block: Extents
    shared: SharedBytes

    @property
    def name(self) -> str:
        """The name of the kernel in C++, such as `filters::blur`."""
        return self.source.name

    @property
    def family(self) -> str:
        """The family of its configurations: the name without namespaces."""
        return self.name.rpartition("::")[2]

    def combinations(self) -> Iterator[Config]:
        """All combinations of the values; the last parameter varies fastest."""
        names = tuple(self.parameters)
        for values in product(*self.parameters.values()):
            yield Config(self.family, tuple(zip(names, values, strict=True)))


def define_kernel(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[Value]],
    *,
    constraints: Mapping[str, Predicate] | None,
    grid: Extents | None,
    block: Extents | None,
    shared: SharedBytes,
    problem_size: Extents | None = None,
    grid_div: Sequence[Divisor] | None = None,
    compile: Compilation | None = None,
) -> UserKernel:
    """The kernel that the arguments of `tune_kernel` define.

    Raises:
        UsageError: for an invalid name, parameter, constraint, option or folder, a file that cannot
            be read, or more configurations than a search can enumerate.
    """
    values, compile = _parameters(parameters), compile or Compilation()
    require_list("include", compile.include)
    plain, form = _form(name, tuple(values), compile.defines)
    folders = [_folder(folder) for folder in compile.include]
    read = read_files(source, plain, folders)
    threads = block_extents(block, values)
    own = [source.resolve().parent] if isinstance(source, Path) else []
    files = read.file, read.texts, read.folders
    try:
        options = check_options(compile.options, values)
        checked = KernelSource(plain, form, *files, compile.defines, options)
    except ValueError as error:
        raise UsageError(f"{error}; rename the file, or change the kernel's name") from error
    return UserKernel(
        source=checked,
        includes=(*own, *folders),
        parameters=values,
        constraints=_constraints(constraints or {}),
        grid=grid_extents(grid, problem_size, grid_div, threads, values),
        block=threads,
        shared=shared,
    )


@contextmanager
def source_folder(kernel: UserKernel) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """A temporary folder with copies of the source and its headers, and the folders to search for
    headers. Later changes of the files do not matter."""
    with unpacked(kernel.source, kernel.includes) as places:
        yield places


def _folder(folder: str | Path) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(f"include has {str(folder)!r}, which is no folder; give those of headers")
    return path.resolve()


def _constraints(constraints: Mapping[str, Predicate]) -> dict[str, Predicate]:
    for reason, predicate in constraints.items():
        if not isinstance(reason, str) or not reason.strip() or not callable(predicate):
            raise UsageError(
                f"constraint {reason!r} is {predicate!r}; give a short reason and a function of "
                "the parameters that returns whether they go together"
            )
    return dict(constraints)


def _parameters(parameters: Mapping[str, Sequence[Value]]) -> dict[str, tuple[Value, ...]]:
    checked: dict[str, tuple[Value, ...]] = {}
    for name, values in parameters.items():
        if not isinstance(name, str) or not is_macro_name(name) or name == RESERVED:
            raise UsageError(
                f"a parameter is called {name!r}; give a C++ identifier other than {RESERVED!r}, "
                "one that C++ does not use or reserve"
            )
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise UsageError(f"values of {name} are {values!r}; give a sequence of values")
        checked_values = [_value(name, value) for value in values]
        if any(isinstance(value, float) for value in checked_values):
            checked_values = [_as_float(name, value) for value in checked_values]
        distinct = tuple(dict.fromkeys(checked_values))
        if not 1 <= len(distinct) <= MOST_VALUES:
            raise UsageError(f"{name} has {len(distinct)} values; give 1 to {MOST_VALUES}")
        checked[name] = distinct
    if (count := prod(map(len, checked.values()))) > MOST:
        raise UsageError(
            f"the parameters have {count:,} combinations; give values that have at most {MOST:,}"
        )
    return checked


def _value(name: str, value: object) -> Value:
    """A value of a parameter: a whole number, which a boolean is too, a float or a word."""
    if isinstance(value, str):
        if not (_TOKENS.fullmatch(value) and is_word(value)) or value_of(value) != value:
            raise UsageError(
                f"{name} has the value {value!r}; give a word of at most 200 characters without "
                "commas, quotes and braces that is no number: name a type with commas by `using`"
            )
        return str(value)
    if isinstance(value, SupportsIndex | np.bool_):
        whole = int(value)
        if abs(whole) >= LARGEST:
            raise UsageError(f"{name} has the value {whole}; give numbers below 10^15")
        return whole
    return _as_float(name, value)


def _as_float(name: str, value: object) -> float:
    if not isinstance(value, SupportsFloat) or not abs(number := float(value)) < LARGEST:
        raise UsageError(
            f"{name} has the value {value!r}; give whole numbers, booleans, words or finite "
            "floats, of one kind"
        )
    return number


def _form(name: str, parameters: tuple[str, ...], defines: bool) -> tuple[str, str]:
    """The kernel's name without template arguments, and the form of an instance."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(
            f"name is {name!r}; give that of the kernel, such as 'transpose', or with the "
            "parameters that it takes, 'transpose<TILE, ROWS>'"
        )
    plain, inner = match.groups()
    if inner is None:
        inner = "" if defines else ", ".join(parameters)
    if not inner.strip():  # no template
        return plain, plain
    escaped = inner.replace("{", "{{").replace("}", "}}")

    def spelt(word: re.Match[str]) -> str:
        return f"{{{word[0]}}}" if word[0] in parameters else word[0]

    return plain, f"{plain}<{_WORD.sub(spelt, escaped)}>"
