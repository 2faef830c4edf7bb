"""The definition of a user kernel: source, template parameters, constraints and geometry."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from math import prod
from operator import index
from pathlib import Path
from typing import SupportsIndex

from autotune import files
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.files import limits
from autotune.user_kernels.geometry import Extents, ParameterValues, SharedBytes

Predicate = Callable[[ParameterValues], object]
"""Whether a combination of parameter values is allowed."""

# The search stores the index of a value in one byte, and enumerates all configurations.
MOST_VALUES, MOST = 256, 250_000
RESERVED = "family"
"""A parameter name that the search uses itself."""

_NAME = re.compile(r"\s*([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<(.*)>\s*)?", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class UserKernel:
    """A user's definition of a kernel, checked.

    Attributes:
        name: the name of the kernel in C++, such as `filters::blur`.
        form: an instance of it in C++, with `{TILE}` for the value of the parameter TILE.
        text: the CUDA C++ source.
        file: the file name that compilers see.
        includes: folders to search for headers.
        parameters: the values of each parameter, in the order of enumeration.
        constraints: predicates that the values have to fulfil, by a short reason.
        grid: blocks along x, y and z, or a function that returns them.
        block: threads along x, y and z, or a function that returns them.
        shared: bytes of dynamic shared memory, or a function that returns them.
    """

    name: str
    form: str
    text: str
    file: str
    includes: tuple[Path, ...]
    parameters: Mapping[str, tuple[int, ...]]
    constraints: Mapping[str, Predicate]
    grid: Extents
    block: Extents
    shared: SharedBytes

    @property
    def family(self) -> str:
        """The family of its configurations: the name without namespaces."""
        return self.name.rpartition("::")[2]

    def combinations(self) -> Iterator[Config]:
        """All combinations of the values; the last parameter varies fastest."""
        names = tuple(self.parameters)
        for values in product(*self.parameters.values()):
            yield Config(self.family, tuple(zip(names, values, strict=True)))

    def template(self, config: Config) -> Template:
        """The template instance of a configuration."""
        values = ((name, config.integer(name)) for name in self.parameters)
        return Template(self.file, self.name, tuple(values), form=self.form)


def define_kernel(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[int]],
    *,
    constraints: Mapping[str, Predicate] | None,
    grid: Extents,
    block: Extents,
    shared: SharedBytes,
    include: Sequence[str | Path],
) -> UserKernel:
    """The kernel that the arguments of `tune_kernel` define.

    Raises:
        UsageError: for an invalid name, parameter, constraint or folder, a file that cannot be
            read, or more configurations than a search can enumerate.
    """
    values = _parameters(parameters)
    plain, form = _form(name, tuple(values))
    text, file, folders = _source(source, plain)
    folders += [_folder(folder) for folder in include]
    constraints = dict(constraints or {})
    for reason, predicate in constraints.items():
        if not isinstance(reason, str) or not reason.strip() or not callable(predicate):
            raise UsageError(
                f"constraint {reason!r} is {predicate!r}; give a short reason and a function of "
                "the parameters that returns whether they go together"
            )
    return UserKernel(
        name=plain,
        form=form,
        text=text,
        file=file,
        includes=tuple(folders),
        parameters=values,
        constraints=constraints,
        grid=grid,
        block=block,
        shared=shared,
    )


@contextmanager
def source_folder(kernel: UserKernel) -> Iterator[Path]:
    """A temporary folder with a copy of the source, so that later changes of the file do not
    matter."""
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        Path(folder, kernel.file).write_text(kernel.text, encoding="utf-8")
        yield Path(folder)


def _source(source: str | Path, name: str) -> tuple[str, str, list[Path]]:
    """The text, its file name, and the folder of its own headers."""
    if isinstance(source, Path):
        try:
            text = files.read(source, limits.SOURCE).decode().replace("\r\n", "\n")
            return text, source.name, [source.resolve().parent]
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"source {source} cannot be read: {error}") from error
    if not isinstance(source, str):
        raise UsageError(f"source is {source!r}; give CUDA C++ as text, or a pathlib.Path")
    if "\n" not in source and source.strip().endswith((".cu", ".cuh")):
        raise UsageError(f"source is the text {source!r}; for a file give pathlib.Path({source!r})")
    return source, f"{name.rpartition('::')[2]}.cu", []


def _folder(folder: str | Path) -> Path:
    path = Path(folder)
    if not path.is_dir():
        raise UsageError(f"include has {str(folder)!r}, which is no folder; give those of headers")
    return path.resolve()


def _parameters(parameters: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    checked: dict[str, tuple[int, ...]] = {}
    for name, values in parameters.items():
        if not isinstance(name, str) or not _WORD.fullmatch(name) or name == RESERVED:
            raise UsageError(
                f"a parameter is called {name!r}; give a C++ identifier other than {RESERVED!r}"
            )
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise UsageError(f"values of {name} are {values!r}; give a sequence of whole numbers")
        distinct = tuple(dict.fromkeys(_whole(name, value) for value in values))
        if not 1 <= len(distinct) <= MOST_VALUES:
            raise UsageError(f"{name} has {len(distinct)} values; give 1 to {MOST_VALUES}")
        checked[name] = distinct
    if (count := prod(map(len, checked.values()))) > MOST:
        raise UsageError(
            f"the parameters have {count:,} combinations; give values that have at most {MOST:,}"
        )
    return checked


def _whole(name: str, value: object) -> int:
    if not isinstance(value, SupportsIndex):
        raise UsageError(f"{name} has the value {value!r}; give whole numbers")
    return index(value)


def _form(name: str, parameters: tuple[str, ...]) -> tuple[str, str]:
    """The kernel's name without template arguments, and the form of an instance."""
    match = _NAME.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise UsageError(
            f"name is {name!r}; give that of the kernel, such as 'transpose', or with the "
            "parameters that it takes, 'transpose<TILE, ROWS>'"
        )
    plain, inner = match.groups()
    if inner is None:
        inner = ", ".join(parameters)
    if not inner.strip():  # no template
        return plain, plain
    escaped = inner.replace("{", "{{").replace("}", "}}")

    def spelt(word: re.Match[str]) -> str:
        return f"{{{word[0]}}}" if word[0] in parameters else word[0]

    return plain, f"{plain}<{_WORD.sub(spelt, escaped)}>"
