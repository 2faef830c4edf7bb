"""The source of a user kernel with its headers, as a value that travels with the record."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from string import Formatter

from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.files import temporary_folder

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
"""An include directive; its group is the header."""

FOLDER = "kernel"
"""The folder that a source is unpacked to. Hashes of sources contain it."""


@dataclass(frozen=True)
class KernelSource:
    """A user kernel in CUDA C++ and everything that compiling an instance of it takes, except for
    CUDA's own headers.

    Attributes:
        name: the kernel's name in C++, such as `filters::blur`.
        form: an instance of it in C++, with `{TILE}` for the value of the parameter TILE.
        file: the file of the kernel, among `files`.
        files: the text of each file by its path.
        folders: the folders among them that are searched for headers, in this order.
        defines: whether the parameters are macros, rather than arguments of a template.
        options: further options of the compiler.

    Raises:
        ValueError: for a path that leads out of the folder that it is unpacked to, or a form that
            is none.
    """

    name: str
    form: str
    file: str
    files: tuple[tuple[str, str], ...]
    folders: tuple[str, ...] = ()
    defines: bool = False
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for path in (*dict(self.files), *self.folders):
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts or "\0" in path:
                raise ValueError(f"path {path!r} of a source leads out of its folder")
        if self.file not in dict(self.files):
            raise ValueError(f"a source without its file {self.file!r}")

    @property
    def text(self) -> str:
        """The text of the file with the kernel."""
        return dict(self.files)[self.file]

    @property
    def size(self) -> int:
        """Characters of all files."""
        return sum(len(text) for _, text in self.files)

    @property
    def complete(self) -> bool:
        """Whether it has every header that it includes: CUDA's own are not needed."""
        names = {PurePosixPath(path).name for path, _ in self.files}
        return all(
            PurePosixPath(header).name in names
            for _, text in self.files
            for header in INCLUDE.findall(text)
        )

    def template(self, config: Config) -> Template:
        """The template instance of a configuration.

        Raises:
            ValueError: if the form names a parameter that the configuration lacks.
        """
        values = config.values
        for _, name, spec, conversion in Formatter().parse(self.form):
            if name is not None and (name not in values or spec or conversion):
                raise ValueError(f"{self.form!r} names {name!r}, no parameter of {config}")
        macros = tuple((name, str(value)) for name, value in values.items()) if self.defines else ()
        return Template(
            self.file,
            self.name,
            config.params,
            form=self.form,
            macros=macros,
            options=self.options,
        )

    @contextmanager
    def unpacked(self) -> Iterator[tuple[Path, tuple[Path, ...]]]:
        """A temporary folder with the files, and the folders in it to search for headers."""
        with temporary_folder() as scratch:
            root = scratch / FOLDER
            root.mkdir()
            for path, text in self.files:
                (root / path).parent.mkdir(parents=True, exist_ok=True)
                (root / path).write_text(text, encoding="utf-8")
            yield root, tuple(root / folder for folder in self.folders)
