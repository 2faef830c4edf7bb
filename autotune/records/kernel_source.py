"""The source of a user kernel with its headers, as a value that travels with the record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from string import Formatter

from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.files import plain, temporary_folder
from autotune.files.decoding import shown
from autotune.records import stands_alone

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
"""An include directive; its group is the header."""

LONGEST_PATH, LONGEST_PART = 1000, 255
"""Characters of a file's path, and bytes of each of its parts."""

_PATH = re.compile(plain.PATH)
_NAME = re.compile(plain.QUALIFIED)
_FORM = re.compile(r"[\w:<>*&.,+\-/%|^~!=()\[\]{}' ]+")

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
        ValueError: for a name, a form or a path that is none, or a path that leads out of the
            folder that the source is unpacked to.
    """

    name: str
    form: str
    file: str
    files: tuple[tuple[str, str], ...]
    folders: tuple[str, ...] = ()
    defines: bool = False
    options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        paths = {PurePosixPath(path) for path in dict(self.files)}
        for text in (*dict(self.files), *self.folders):
            if not _is_path(text):
                raise ValueError(
                    f"path {shown(text)} of a source is empty, too long, absolute, has '..' or "
                    "characters that cannot be quoted"
                )
        if PurePosixPath() in paths or any(paths.intersection(path.parents) for path in paths):
            raise ValueError("a source with a file in the place of a folder")
        if self.file not in dict(self.files):
            raise ValueError(f"a source without its file {shown(self.file)}")
        if any("\0" in text for _, text in self.files):
            raise ValueError("a source with a character of the code 0")
        of_kernel = self.form == self.name or self.form.startswith(f"{self.name}<")
        if not (_NAME.match(self.name) and _FORM.fullmatch(self.form) and of_kernel):
            raise ValueError(f"{shown(self.form)} is no instance of a kernel {shown(self.name)}")

    @property
    def fault(self) -> str | None:
        """Why a record cannot hold it; None if it stands alone (see `stands_alone`)."""
        return stands_alone.fault(dict(self.files), self.folders, self.options)

    @property
    def digest(self) -> str:
        """A hash of all that it is compiled from."""
        return sha256(json.dumps(asdict(self)).encode()).hexdigest()

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


def _is_path(text: str) -> bool:
    parts = PurePosixPath(text).parts
    long = len(text) > LONGEST_PATH or any(len(part.encode()) > LONGEST_PART for part in parts)
    return _PATH.fullmatch(text) is not None and ".." not in parts and not long
