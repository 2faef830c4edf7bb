"""The source of a user kernel: its files with headers, the form of an instance, compiler options.

A compiler option is refused where it would silently win over what the package sets itself, or where
it reads or writes files that nobody sees. The compiler refuses options that it does not know.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from autotune import files, settings
from autotune.cuda import compiler
from autotune.cuda.nvrtc import cuda_headers
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError, UsageError
from autotune.families.plan import LaunchPlan
from autotune.files import limits
from autotune.problem.call import LONGEST_NAME
from autotune.records.kernel_record import INCLUDE, CompilerName, KernelEntry, KernelSource
from autotune.user_kernels.geometry import ParameterValues

HEADERS = "include"
"""The folder of headers beside a source that was given as text."""

Source = str | Path | Sequence[Path] | Callable[[ParameterValues], str]
"""CUDA C++ as text; a file; several, of which the first has the kernel and includes the others; or
a function of the parameters that returns the text of a configuration."""

Texts = tuple[tuple[str, str], ...]
"""The text of each file by its path, relative to the folder that holds all."""


def check_source(source: object) -> tuple[str | Path, tuple[Path, ...]]:
    """The text or file of a kernel, and further files.

    Raises:
        UsageError: if the source is none of `Source`, or a text looks like a path.
    """
    if isinstance(source, Sequence) and not isinstance(source, str) and source:
        first, *further = source
        if all(isinstance(path, Path) for path in source):
            return first, tuple(further)
    if not isinstance(source, str | Path):
        raise UsageError(
            f"source is {source!r}; give CUDA C++ as text, a pathlib.Path, a list of them, or a "
            "function of the parameters that returns text"
        )
    if isinstance(source, str) and "\n" not in source and source.strip().endswith((".cu", ".cuh")):
        raise UsageError(f"source is the text {source!r}; for a file give pathlib.Path({source!r})")
    return source, ()


def read_files(
    source: str | Path, name: str, folders: Sequence[Path], further: Sequence[Path] = ()
) -> tuple[str, Texts, tuple[str, ...]]:
    """A source with every header that it reaches in its own folder and in `folders`.

    Other headers, such as CUDA's, are left to the compiler.

    Args:
        source: CUDA C++ as text, or the path of a file.
        name: the kernel's name, for the file name of a text.
        folders: folders of headers.
        further: files that it has to include; their folders are searched too.

    Returns:
        The path of the source, all texts, and the folders to search for headers, as such paths.

    Raises:
        UsageError: if a file cannot be read, or a further one is not included.
    """
    folders = tuple(dict.fromkeys((*folders, *(path.resolve().parent for path in further))))
    if isinstance(source, Path):
        path, text, below = source.resolve(), _read(source), ""
        folders = path.parent, *folders
    else:
        path = Path(f"{name.rpartition('::')[2][:LONGEST_NAME]}.cu")
        text, below = source.removeprefix("\ufeff"), HEADERS
    headers = _reached(text, folders)
    for extra in further:
        if extra.resolve() not in headers:
            raise UsageError(f"{source} does not include {extra}; include it, or leave it out")
    parents = [header.parent for header in headers] + [path.parent] * path.is_absolute()
    if not parents:
        return path.name, ((path.name, text),), ()
    used = [folder for folder in folders if any(place.is_relative_to(folder) for place in parents)]
    root = Path(os.path.commonpath([*parents, *used]))

    def relative(place: Path) -> str:
        return Path(below, place.relative_to(root)).as_posix()

    file = relative(path) if path.is_absolute() else path.name
    texts = {file: text} | {relative(header): content for header, content in headers.items()}
    searched = tuple(relative(folder) for folder in folders if folder.is_relative_to(root))
    return file, tuple(texts.items()), searched


@contextmanager
def unpacked(
    source: KernelSource, further: Sequence[Path] = ()
) -> Iterator[tuple[Path, tuple[Path, ...]]]:
    """A temporary folder with a source and its headers, and the folders to search for headers:
    its own, `further` ones and, if it needs them, those of CUDA."""
    with source.unpacked() as (folder, folders):
        yield folder, (*folders, *further, *(() if source.complete else cuda_headers()))


def compiled(entry: KernelEntry, arch: str) -> tuple[LaunchPlan, tuple[Program, ...]]:
    """The launches of a recorded configuration and their programs, from the cache if it has them.

    Raises:
        NotFoundError: if the record does not have its source.
        MissingError: without a compiler.
        AutotuneError: if a kernel does not compile.
    """
    recorded, cache, programs = entry.launchable(), settings.cache_dir(), []
    plan = recorded.plan(entry.config)
    with unpacked(recorded.source) as (sources, includes):
        for launch in plan.launches:
            program = compiler.compile(
                launch.template, arch, cache=cache, sources=sources, includes=includes
            )
            if isinstance(program, CompileFailure):
                raise AutotuneError(f"{entry.config} does not compile for {arch}: {program.reason}")
            programs.append(program)
    return plan, tuple(programs)


def _read(source: Path) -> str:
    """A file's text, without a byte order mark. Other encodings than UTF-8 are those of comments:
    each of their bytes is taken for a letter."""
    try:
        data = files.read(source, limits.SOURCE)
    except OSError as error:
        raise UsageError(f"source {source} cannot be read: {error}") from error
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    return text.replace("\r\n", "\n")


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


_NAME = re.compile(r"\s*([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<(.*)>\s*)?(\(.*\))?\s*", re.DOTALL)

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class Compilation:
    """The compilation of a user kernel.

        autotune.tune_kernel(..., compile=autotune.Compilation(defines=True))

    Attributes:
        include: folders of headers. CUDA's own, such as `cuda_fp16.h`, are found by themselves.
        defines: whether the parameters are macros of the source instead of arguments of a template.
        options: further options of the compiler, such as `--use_fast_math`; none that sets a
            parameter, the device or folders of headers, or writes files.
        compiler: `nvrtc` or `nvcc`. None takes NVRTC, and nvcc for a source that NVRTC cannot
            compile but nvcc can, such as one with host code beside the kernel.
    """

    include: Sequence[str | Path] = ()
    defines: bool = False
    options: Sequence[str] = ()
    compiler: CompilerName | None = None


def header_folder(folder: str | Path) -> Path:
    """A folder of headers as an absolute path; raises a `UsageError` if it is not a folder."""
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(
            f"include has {str(folder)!r}, which is not a folder; give folders of headers"
        )
    return path.resolve()


def check_compiler(compiler: CompilerName | None) -> CompilerName:
    """The compiler to try first; raises a `UsageError` for an unknown one."""
    if compiler not in (None, *get_args(CompilerName)):
        raise UsageError(f"compiler is {compiler!r}; give 'nvrtc' or 'nvcc', or leave it out")
    return compiler or "nvrtc"


def instance_form(name: str, parameters: tuple[str, ...], defines: bool) -> tuple[str, str]:
    """The kernel's name without template arguments, and the form of an instance."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(
            f"name is {name!r}; give the name of the kernel, such as 'transpose', or with the "
            "parameters that it takes, 'transpose<TILE, ROWS>'"
        )
    plain, inner, signature = match.groups()
    if inner is None:
        inner = "" if defines else ", ".join(parameters)
    instance = f"<{inner}>" if inner.strip() else ""  # else no template
    escaped = f"{instance}{signature or ''}".replace("{", "{{").replace("}", "}}")

    def spelt(word: re.Match[str]) -> str:
        return f"{{{word[0]}}}" if word[0] in parameters else word[0]

    return plain, f"{plain}{_WORD.sub(spelt, escaped)}"


# `-DTILE=32`, `-D TILE=32` and `-I/folder`; `--define-macro=TILE=32` and `-arch=sm_80`.
_OPTION = re.compile(r"--?([DUI]|[A-Za-z][\w-]*)[\s=]*(.*)", re.DOTALL)

_LISTS = "Xptxas", "ptxas-options", "Xcompiler", "compiler-options"
"""Options whose value is a list of options of another tool."""

_REMEDIES = {
    "I|include-path|isystem|system-include": (
        "give folders of headers as `include` of `Compilation`, so that changes are noticed"
    ),
    "include|pre-include": "write the #include in the source",
    "arch|code|gencode|generate-code|gpu-(architecture|code|name)": (
        "kernels are compiled for `device`; name another there"
    ),
    "o|odir|output-.*|objtemp|objdir-as-tempdir|keep(-dir)?|save-temps|M+[A-Z]?|.*dependenc.*|"
    "time|.*time-trace|(create-|use-)?pch(-dir)?|c|dc|dw|cubin|ptx|fatbin|cuda|E|lib|link|shared|"
    "dlink|rdc|relocatable-device-code|optf|options-file|ccbin|compiler-bindir|run|clean-targets": (
        "it makes, reads or writes other files than the kernel's; leave it out"
    ),
}
"""The remedy of each refused option, by a pattern of its names."""


def check_options(options: Sequence[str], macros: Collection[str]) -> tuple[str, ...]:
    """The options as the compiler gets them, without those for a host compiler.

    Args:
        options: options of NVRTC or nvcc; a value may be an element of its own.
        macros: the tuned parameters, which no option may define.

    Raises:
        UsageError: for what is not a list of options, and for an option that is refused.
    """
    joined = _joined(options)
    for option in joined:
        for name, value in _named(option):
            macro = re.split(r"\W", value, maxsplit=1)[0]
            if name in ("D", "U", "define-macro", "undefine-macro") and macro in macros:
                raise UsageError(
                    f"options has {option!r}, and {macro} is tuned; give its values in `parameters`"
                )
            for names, remedy in _REMEDIES.items():
                if re.fullmatch(names, name):
                    raise UsageError(f"options has {option!r}: {remedy}")
    # NVRTC always optimises, and refuses the levels of nvcc's host compiler.
    return tuple(option for option in joined if not re.fullmatch("-O[0-3]", option))


def _joined(options: Sequence[str]) -> list[str]:
    """Each option with its value in one text."""
    wrong = UsageError(
        f"options is {options!r}; give a list of the compiler's options, such as "
        "['--use_fast_math', '-DN=4096']"
    )
    if isinstance(options, str) or not hasattr(options, "__iter__"):
        raise wrong
    joined: list[str] = []
    for option in options:
        if not isinstance(option, str):
            raise wrong
        name, value = next(_named(joined[-1]), ("", "")) if joined else ("", "")
        lacking = not value and name in ("D", "U", "I", *_LISTS)
        if lacking or (name and "=" not in joined[-1] and not option.startswith("-")):
            joined[-1] += option if name in ("D", "U", "I") else f"={option}"
        elif option.startswith("-"):
            joined.append(option)
        else:
            raise wrong
    return joined


def _named(option: str) -> Iterator[tuple[str, str]]:
    """The name and the value of an option, and of those in its value."""
    if match := _OPTION.fullmatch(option):
        name, value = match.groups()
        yield name, value
        for inner in re.split(r"[,\s]+", value) if name in _LISTS else ():
            yield from _named(inner)
