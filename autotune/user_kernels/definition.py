"""A templated CUDA kernel of the user's: its source, its parameters, and how it is launched."""

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

from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.user_kernels.geometry import Extents, ParameterValues, SharedBytes

Predicate = Callable[[ParameterValues], object]
"""Whether the values of the parameters go together."""

# The search keeps which value a configuration has in a byte, and looks at all configurations.
MOST_VALUES, MOST = 256, 250_000
RESERVED = "family"
"""What the search calls a choice of its own."""

_NAME = re.compile(r"\s*([A-Za-z_]\w*(?:::[A-Za-z_]\w*)*)\s*(?:<(.*)>\s*)?", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True)
class UserKernel:
    """What the user says of a kernel, checked.

    Attributes:
        name: of the kernel in C++, such as `filters::blur`.
        form: an instance of it in C++, with `{TILE}` for the value of the parameter TILE.
        text: the CUDA C++ source.
        file: what compilers call it.
        includes: folders in which headers are looked for.
        parameters: the values of each, in the order in which they are chosen.
        constraints: predicates that the values have to fulfil, by a short reason.
        grid: blocks along x, y and z, or what gives them.
        block: threads along x, y and z, or what gives them.
        shared: bytes of dynamic shared memory, or what gives them.
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
        """What its configurations are called: the name without namespaces."""
        return self.name.rpartition("::")[2]

    def combinations(self) -> Iterator[Config]:
        """All combinations of the values, the last parameter varying fastest."""
        names = tuple(self.parameters)
        for values in product(*self.parameters.values()):
            yield Config(self.family, tuple(zip(names, values, strict=True)))

    def template(self, config: Config) -> Template:
        """The instance that a configuration stands for."""
        taken = ((name, config.integer(name)) for name in self.parameters)
        return Template(self.file, self.name, tuple(taken), form=self.form)


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
        UsageError: for a name, a parameter, a constraint or a folder that is none, a file that
            cannot be read, and more configurations than a search can look at.
    """
    values = _parameters(parameters)
    plain, form = _form(name, tuple(values))
    text, file, folders = _source(source, plain)
    folders += [_folder(one) for one in include]
    given = dict(constraints or {})
    for reason, predicate in given.items():
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
        constraints=given,
        grid=grid,
        block=block,
        shared=shared,
    )


@contextmanager
def source_folder(kernel: UserKernel) -> Iterator[Path]:
    """A folder with the source in it, which stays as it was read whatever becomes of the file."""
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        Path(folder, kernel.file).write_text(kernel.text, encoding="utf-8")
        yield Path(folder)


def _source(source: str | Path, name: str) -> tuple[str, str, list[Path]]:
    """The text, what to call it, and where its own headers are."""
    if isinstance(source, Path):
        try:
            return source.read_text(encoding="utf-8"), source.name, [source.resolve().parent]
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
    found: dict[str, tuple[int, ...]] = {}
    for name, values in parameters.items():
        if not isinstance(name, str) or not _WORD.fullmatch(name) or name == RESERVED:
            raise UsageError(
                f"a parameter is called {name!r}; give a C++ identifier other than {RESERVED!r}"
            )
        if isinstance(values, str) or not hasattr(values, "__iter__"):
            raise UsageError(f"values of {name} are {values!r}; give a sequence of whole numbers")
        held = tuple(dict.fromkeys(_whole(name, value) for value in values))
        if not 1 <= len(held) <= MOST_VALUES:
            raise UsageError(f"{name} has {len(held)} values; give 1 to {MOST_VALUES}")
        found[name] = held
    if (count := prod(map(len, found.values()))) > MOST:
        raise UsageError(
            f"the parameters have {count:,} combinations; give values that have at most {MOST:,}"
        )
    return found


def _whole(name: str, value: object) -> int:
    if not isinstance(value, SupportsIndex):
        raise UsageError(f"{name} has the value {value!r}; give whole numbers")
    return index(value)


def _form(name: str, parameters: tuple[str, ...]) -> tuple[str, str]:
    """The kernel's name without template arguments, and an instance of it."""
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
