"""The definition of a user kernel: source with headers, parameters, constraints, geometry, options.

A compiler option is refused where it would silently win over what the package sets itself, or where
it reads or writes files that nobody sees. The compiler refuses options that it does not know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod
from pathlib import Path
from typing import SupportsFloat, SupportsIndex

import numpy as np

from autotune import files
from autotune.errors import UsageError, require_list
from autotune.families.config import Config, Value, value_of
from autotune.files import limits
from autotune.files.decoding import is_macro_name, is_word
from autotune.records.kernel_record import INCLUDE, Geometry, KernelSource
from autotune.user_kernels.geometry import (
    Divisor,
    Extents,
    ParameterValues,
    SharedBytes,
    block_extents,
    geometry_of,
    grid_extents,
)

HEADERS = "include"
"""The folder of headers beside a source that was given as text."""


Texts = tuple[tuple[str, str], ...]
"""The text of each file by its path, relative to the folder that holds all."""


def read_files(
    source: str | Path, name: str, folders: Sequence[Path]
) -> tuple[str, Texts, tuple[str, ...]]:
    """A source with every header that it reaches in its own folder and in `folders`.

    Other headers, such as CUDA's, are left to the compiler.

    Args:
        source: CUDA C++ as text, or the path of a file.
        name: the kernel's name, for the file name of a text.
        folders: folders of headers.

    Returns:
        The path of the source, all texts, and the folders to search for headers, as such paths.

    Raises:
        UsageError: if the source cannot be read, or is neither text nor a path.
    """
    if isinstance(source, Path):
        text, path = _read(source), source.resolve()
        headers = _reached(text, (path.parent, *folders))
        root = _common((path.parent, *(header.parent for header in headers)), folders)
        texts = _relatives({path: text, **headers}, root)
        used = [folder for folder in (path.parent, *folders) if folder.is_relative_to(root)]
        return _relative(path, root), texts, _paths(used, root)
    if not isinstance(source, str):
        raise UsageError(f"source is {source!r}; give CUDA C++ as text, or a pathlib.Path")
    if "\n" not in source and source.strip().endswith((".cu", ".cuh")):
        raise UsageError(f"source is the text {source!r}; for a file give pathlib.Path({source!r})")
    file = f"{name.rpartition('::')[2]}.cu"
    headers = _reached(source, folders)
    if not headers:
        return file, ((file, source),), ()
    root = _common([header.parent for header in headers], folders)
    used = [folder for folder in folders if folder.is_relative_to(root)]
    texts = (*((file, source),), *_relatives(headers, root, HEADERS))
    return file, texts, _paths(used, root, HEADERS)


@contextmanager
def unpacked(
    source: KernelSource, further: Sequence[Path] = ()
) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """A temporary folder with a source and its headers, and the folders to search for headers:
    its own, `further` ones and, if it needs them, those of CUDA."""
    with source.unpacked() as (folder, folders):
        yield folder, (*folders, *further, *(() if source.complete else cuda_headers()))


@cache
def cuda_headers() -> tuple[Path, ...]:
    """The folders of CUDA's own headers, such as `cuda_fp16.h` and `cub/cub.cuh`: those of a
    toolkit, or of the wheels `nvidia-cuda-runtime` and `nvidia-cuda-cccl`; none without either."""
    try:
        from cuda.pathfinder import find_nvidia_header_directory
    except ImportError:
        return ()
    places = (find_nvidia_header_directory(library) for library in ("cudart", "cccl"))
    return tuple(dict.fromkeys(Path(place) for place in places if place))


def _read(source: Path) -> str:
    try:
        return files.read(source, limits.SOURCE).decode().replace("\r\n", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"source {source} cannot be read: {error}") from error


def _reached(text: str, folders: Sequence[Path]) -> dict[Path, str]:
    """The headers that a text includes, directly or through others, in the compiler's order."""
    headers: dict[Path, str] = {}
    pending = [(name, folders) for name in INCLUDE.findall(text)]
    while pending:
        name, places = pending.pop()
        path = next((place / name for place in places if (place / name).is_file()), None)
        if path is None or (path := Path(os.path.normpath(path))) in headers:
            continue
        headers[path] = _read(path)
        beside = (path.parent, *folders)
        pending += [(inner, beside) for inner in INCLUDE.findall(headers[path])]
    return headers


def _common(parents: Iterable[Path], folders: Sequence[Path]) -> Path:
    """The folder that holds all files, and the folders through which they are included."""
    parents = [*parents]
    used = [folder for folder in folders if any(path.is_relative_to(folder) for path in parents)]
    return Path(os.path.commonpath([*parents, *used]))


def _relative(path: Path, root: Path, below: str = "") -> str:
    return (Path(below) / path.relative_to(root)).as_posix()


def _relatives(texts: dict[Path, str], root: Path, below: str = "") -> tuple[tuple[str, str], ...]:
    return tuple((_relative(path, root, below), text) for path, text in texts.items())


def _paths(folders: Iterable[Path], root: Path, below: str = "") -> tuple[str, ...]:
    return tuple(_relative(folder, root, below) for folder in folders)


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
    """The compilation of a user kernel.

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

    def geometry(self, config: Config) -> Geometry:
        """The launch geometry of a configuration.

        Raises:
            UsageError: if the grid, the block or the shared memory is not a size, or its function
                fails.
        """
        return geometry_of(self.grid, self.block, self.shared, config)

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
    try:
        options = check_options(compile.options, values)
        checked = KernelSource(plain, form, *read, compile.defines, options)
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


def _folder(folder: str | Path) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(
            f"include has {str(folder)!r}, which is not a folder; give folders of headers"
        )
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
                "a name that C++ does not use or reserve"
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
                "commas, quotes and braces that is not a number: name a type with commas by `using`"
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
            f"name is {name!r}; give the name of the kernel, such as 'transpose', or with the "
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


_HOST_LEVEL = re.compile(r"-O[0-3]")
"""Options of nvcc for its host compiler; NVRTC always optimises and refuses them."""


# `-DTILE=32`, `-D TILE=32` and `-I/folder`; `--define-macro=TILE=32` and `-arch=sm_80`.
_SHORT = re.compile(r"-([DUI])[\s=]*(.*)", re.DOTALL)


_LONG = re.compile(r"--?([A-Za-z][\w-]*)[\s=]*(.*)", re.DOTALL)


_MACRO = re.compile(r"D|define-macro|U|undefine-macro")


_NESTED = re.compile(r"Xptxas|ptxas-options|Xcompiler|compiler-options")
"""Options whose value is a list of options of another tool."""


_REMEDIES = {
    re.compile(names): remedy
    for names, remedy in (
        (
            "I|include-path|isystem|system-include",
            "give folders of headers as `include` of `Compilation`, so that changes are noticed",
        ),
        ("include|pre-include", "write the #include in the source"),
        (
            "arch|code|gencode|generate-code|gpu-(architecture|code|name)",
            "kernels are compiled for `device`; name another there",
        ),
        (
            "o|odir|output-.*|objtemp|objdir-as-tempdir|keep(-dir)?|save-temps|M+[A-Z]?|.*dependenc.*|"
            "time|.*time-trace|(create-|use-)?pch(-dir)?",
            "it reads or writes files beside the kernel; leave it out",
        ),
        (
            "optf|options-file|ccbin|compiler-bindir|run|clean-targets",
            "it is about other files than the kernel; leave it out",
        ),
    )
}


def check_options(options: Sequence[str], macros: Collection[str]) -> tuple[str, ...]:
    """The options as the compiler gets them, without those for a host compiler.

    Args:
        options: options of NVRTC or nvcc, an option and its value in one text.
        macros: the tuned parameters, which no option may define.

    Raises:
        UsageError: for what is not a list of options, and for an option that is refused.
    """
    if isinstance(options, str) or not hasattr(options, "__iter__"):
        raise _no_options(options)
    for option in options:
        if not isinstance(option, str) or not option.startswith("-"):
            raise _no_options(options)
        for name, value in _named(option):
            macro = re.split(r"\W", value, maxsplit=1)[0]
            if _MACRO.fullmatch(name) and macro in macros:
                raise UsageError(
                    f"options has {option!r}, and {macro} is tuned; give its values in `parameters`"
                )
            for names, remedy in _REMEDIES.items():
                if names.fullmatch(name):
                    raise UsageError(f"options has {option!r}: {remedy}")
    return tuple(option for option in options if not _HOST_LEVEL.fullmatch(option))


def _named(option: str) -> Iterator[tuple[str, str]]:
    """The name and the value of an option, and of those in its value."""
    if match := _SHORT.fullmatch(option) or _LONG.fullmatch(option):
        name, value = match.groups()
        yield name, value
        for inner in re.split(r"[,\s]+", value) if _NESTED.fullmatch(name) else ():
            yield from _named(inner)


def _no_options(options: object) -> UsageError:
    return UsageError(
        f"options is {options!r}; give a list of the compiler's options, such as "
        "['--use_fast_math'], an option and its value in one text"
    )
