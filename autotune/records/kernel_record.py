"""Records of user kernels: each entry can be loaded and launched, as the source travels with it.

A record of a stranger brings source code and options of the compiler. Both compilers have options
that write files (`--time=FILE`) and that read them (`--pre-include=FILE`), and they open any header
by an absolute path or one with `..`. So a record only holds a source that stands alone: its options
are on a list, and its headers are its own, or are searched for by a relative name in CUDA's folders
and, by nvcc, in those of the host compiler. nvcc compiles host code but runs none, and gets nothing
of a record that its shell could run (see `cuda.nvcc`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from hashlib import sha256
from math import prod
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath
from string import Formatter
from typing import Annotated, ClassVar, Literal, TypeVar

from msgspec import Meta

from autotune.errors import NotFoundError, UsageError
from autotune.families.config import Config
from autotune.families.plan import (
    SCALARS,
    Argument,
    ArgumentType,
    Launch,
    LaunchPlan,
    Piece,
    Template,
)
from autotune.files import decoding, temporary_folder
from autotune.files.decoding import shown
from autotune.measure.objective import winner
from autotune.problem.call import TEXTURE, KernelCall
from autotune.records.record import Entry, TuningRecord

T = TypeVar("T")

INCLUDE = re.compile(r'^\s*#\s*include\s*["<]([^">]+)[">]', re.MULTILINE)
"""An include directive; its group is the header."""

LONGEST_PATH, LONGEST_PART = 1000, 255
"""Characters of a file's path, and bytes of each of its parts."""

_PATH = re.compile(decoding.PATH)

_NAME = re.compile(decoding.QUALIFIED)

CompilerName = Literal["nvrtc", "nvcc"]

LAUNCH_MACROS = (
    "kernel_tuner",
    *(f"{extent}_{axis}" for extent in ("grid_size", "block_size") for axis in "xyz"),
)
"""The macros that Kernel Tuner defines besides the parameters: 1, the blocks of the grid and the
threads of a block."""

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
        compiler: `nvrtc` or `nvcc`.
        launch_macros: the macros of `LAUNCH_MACROS` that it reads.

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
    compiler: CompilerName = "nvrtc"
    launch_macros: tuple[str, ...] = ()

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
        of_kernel = self.form == self.name or self.form.startswith(
            (f"{self.name}<", f"{self.name}(")
        )
        if not (_NAME.match(self.name) and _FORM.fullmatch(self.form) and of_kernel):
            raise ValueError(
                f"{shown(self.form)} is not an instance of a kernel {shown(self.name)}"
            )

    @property
    def fault(self) -> str | None:
        """Why a record cannot hold it; None if it stands alone."""
        for option in self.options:
            if not _OPTION.fullmatch(option):
                return f"option {shown(option)} of the compiler is not allowed in a record"
        files = dict(self.files)
        for path, text in self.files:
            for header in _headers(text):
                if header is None or not _inside(header, (dirname(path), *self.folders), files):
                    include = "a header by a macro" if header is None else shown(header)
                    return (
                        f"{path} includes {include}; a record's source has its own headers and "
                        "CUDA's"
                    )
        return None

    @property
    def fields(self) -> dict[str, object]:
        """The source as JSON data, without the compiler and the macros of a launch where they are
        the usual."""
        usual = {"compiler": "nvrtc", "launch_macros": ()}
        return {name: value for name, value in asdict(self).items() if usual.get(name) != value}

    @property
    def digest(self) -> str:
        """A hash of all that it is compiled from."""
        return sha256(json.dumps(self.fields).encode()).hexdigest()

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

    def template(self, config: Config, geometry: Geometry | None = None) -> Template:
        """The template instance of a configuration, with the macros of its launch.

        Raises:
            ValueError: if the form names a parameter that the configuration lacks.
        """
        values = config.values
        for _, name, spec, conversion in Formatter().parse(self.form):
            if name is not None and (name not in values or spec or conversion):
                raise ValueError(f"{self.form!r} names {name!r}, no parameter of {config}")
        macros = tuple((name, str(value)) for name, value in values.items()) if self.defines else ()
        sizes = (1, *geometry.grid, *geometry.block) if geometry else ()
        launch = dict(zip(LAUNCH_MACROS, sizes, strict=False))
        of_launch = (f"-D{name}={launch[name]}" for name in self.launch_macros if name in launch)
        return Template(
            self.file,
            self.name,
            config.params,
            form=self.form,
            macros=macros,
            options=(*self.options, *of_launch),
            compiler=self.compiler,
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


# Options that neither take a path nor choose what is compiled for whom, of NVRTC or nvcc. None has
# a character that a shell reads within double quotes.
_OPTION = re.compile(
    r"--?(use_fast_math|lineinfo|generate-line-info|G|device-debug|dopt=(on|off)|restrict"
    r"|extra-device-vectorization|default-device|device-as-default-execution-space|device-int128"
    r"|w|disable-warnings|diag-(suppress|warn|error)=\d+(,\d+)*"
    r"|(expt-)?relaxed-constexpr|(expt-)?extended-lambda"
    r"|(ftz|fmad|prec-(div|sqrt))=(true|false)|maxrregcount=\d+|std=(c|gnu)\+\+\d[0-9a-z]"
    r"|O[0-3]|(ptxas-options=|Xptxas=)-?-(v|O[0-3]|dlcm=c[agsv]|dscm=(wb|c[gst])|warn-spills)"
    r"|(D|define-macro=)[A-Za-z_]\w*(=[\w:<>*&.+\- ]*)?|(U|undefine-macro=)[A-Za-z_]\w*)"
)

# Wherever it stands, also in a comment: what is one to us may be code to the compiler.
_DIRECTIVE = re.compile(
    r"(?:\#|%:)[^\S\n]*(?:/\*|(?:include\w*|import|embed)\b[^\S\n]*)"
    r"|\bGCC\b[^\n]*?\b(?:dependency|pch_preprocess)\b\s*"
    r"|(?P<defined>(?:ifn?def|defined)[\s(]*)?\b__has_(?:include\w*|embed)\b\s*\(?\s*"
)

_HEADER = re.compile(r'"([^"\n]+)"|<([^>\n]+)>')

_TRIGRAPHS = {"??=": "#", "??/": "\\"}

_SPLICE = re.compile(r"\\[ \t]*\r?\n")


def _headers(text: str) -> list[str | None]:
    """The headers that a text includes or asks about; None for one that it does not spell out."""
    for trigraph, character in _TRIGRAPHS.items():
        text = text.replace(trigraph, character)
    text = _SPLICE.sub("", text)
    headers: list[str | None] = []
    for directive in _DIRECTIVE.finditer(text):
        if not directive["defined"]:
            named = _HEADER.match(text, directive.end())
            headers.append(named and (named[1] or named[2]))
    return headers


def _inside(header: str, places: Sequence[str], files: Collection[str]) -> bool:
    """Whether a header can only be one of the files, or one of CUDA's.

    The compiler takes the first of `places` that has it, so none may lead out of the source. CUDA's
    folders follow; a path with `..` must not reach them.
    """
    if header.startswith("/") or "\\" in header:
        return False
    paths = [normpath(join(place, header)) for place in places]
    if any(path.startswith("..") for path in paths):
        return False
    return ".." not in header.split("/") or any(path in files for path in paths)


Extents3 = tuple[
    Annotated[int, Meta(ge=1, le=2**31 - 1)],
    Annotated[int, Meta(ge=1, le=65535)],
    Annotated[int, Meta(ge=1, le=65535)],
]


@dataclass(frozen=True)
class Geometry:
    """Blocks of a grid and threads of a block along x, y and z; dynamic shared memory in bytes."""

    grid: Extents3
    block: Extents3
    shared: Annotated[int, Meta(ge=0, le=2**20)]

    def __str__(self) -> str:
        grid, block = (" x ".join(map(str, sizes)) for sizes in (self.grid, self.block))
        return f"{grid} blocks of {block} threads, {self.shared} bytes of shared memory"


@dataclass(frozen=True)
class KernelStep:
    """A kernel among several that are launched in order.

    Attributes:
        name: the kernel's name in C++.
        form: an instance of it, as that of a `KernelSource`.
        takes: the positions of the call's arguments that it takes, in its order; None for all.
        cooperative: whether all blocks of its launch are resident at once.
    """

    name: str
    form: str
    takes: tuple[Annotated[int, Meta(ge=0)], ...] | None = None
    cooperative: bool = False

    def of(self, source: KernelSource) -> KernelSource:
        """The kernel with the files of another of the same source; raises as `KernelSource`."""
        if (self.name, self.form) == (source.name, source.form):
            return source
        return replace(source, name=self.name, form=self.form)

    def taken(self, arguments: Sequence[T]) -> tuple[T, ...]:
        """The step's own arguments of the call; raises a `UsageError` if one is missing."""
        takes = range(len(arguments)) if self.takes is None else self.takes
        if max(takes, default=-1) >= len(arguments):
            raise UsageError(
                f"{self.name} takes argument {max(takes)}; there are {len(arguments)}, counted "
                "from 0"
            )
        return tuple(arguments[place] for place in takes)


PIECE_GAP = 4096
"""Bytes between two pieces of scratch memory, at least; the start of each is a multiple of it."""

OwnValue = int | float
"""A number that a configuration determines, as the driver takes it, or bytes of scratch memory."""


@dataclass(frozen=True)
class KernelLaunch:
    """One configuration of a user kernel, with all that launching it takes.

    Attributes:
        source: the source; its kernel is launched where there are no steps.
        call: the types of the arguments.
        geometries: the geometry of each launch, in order.
        steps: the kernels of all launches in order; none for the source's own kernel.
        own: what the configuration determines of the arguments, by their positions: numbers, and
            the bytes of scratch memory.
    """

    source: KernelSource
    call: KernelCall
    geometries: tuple[Geometry, ...]
    steps: tuple[KernelStep, ...] = ()
    own: tuple[tuple[int, OwnValue], ...] = ()

    def plan(self, config: Config, arguments: Sequence[Argument] | None = None) -> LaunchPlan:
        """The launches, each after the end of the one before it.

        The main launch is that with the most threads in its grid. Local memory is allowed: a user
        kernel may use it on purpose.

        Args:
            config: the configuration.
            arguments: those of the call; by default pointers and numbers are words that a caller
                gives, `argument 0` and so on.

        Raises:
            ValueError: for steps, geometries or values that do not fit each other.
        """
        values = [*(self._words() if arguments is None else arguments)]
        pieces, workspace = [], 0
        for place, value in self.own:
            if values[place].value != scratch_word(place):
                values[place] = replace(values[place], value=value)
                continue
            pieces.append(Piece(scratch_word(place), workspace, size := int(value)))
            workspace += size + PIECE_GAP + -size % PIECE_GAP
        steps = self.steps or (KernelStep(self.source.name, self.source.form),)
        launches = tuple(
            Launch(
                step.of(self.source).template(config, geometry),
                *(geometry.grid, geometry.block, geometry.shared),
                step.taken(values),
                cooperative=step.cooperative,
            )
            for step, geometry in zip(steps, self.geometries, strict=True)
        )
        main = max(launches, key=lambda launch: prod(launch.grid) * launch.threads)
        return LaunchPlan(
            config,
            launches,
            workspace=workspace,
            product=launches.index(main),
            local_memory=True,
            dependent=False,
            pieces=tuple(pieces),
        )

    def _words(self) -> Iterator[Argument]:
        """The arguments as words; raises a `ValueError` if `own` does not fit them."""
        texts = self.call.arguments
        if [place for place, _ in self.own] != (varying := determined(texts)):
            raise ValueError(f"values {self.own} for arguments {varying}")
        for place, value in self.own:
            if texts[place].endswith(SCRATCH) and value < 1:
                raise ValueError(f"scratch memory of {value} bytes at argument {place}")
        for place, text in enumerate(texts):
            word = scratch_word if text.endswith(SCRATCH) else word_of
            yield Argument(argument_type(text), word(place))


@dataclass(frozen=True)
class KernelEntry(Entry):
    """A recorded configuration of a user kernel.

    `launch` is None in records of versions that did not keep the source, and of sources too large.
    `metrics` are values of the user's functions by name, `score` that of the objective if it is a
    function too; the least is best.
    """

    launch: KernelLaunch | None = None
    metrics: tuple[tuple[str, float], ...] = ()
    score: float | None = None

    @property
    def rank(self) -> tuple[bool, float]:
        """The sort key: by score, then those without by time."""
        if self.score is None:
            return super().rank
        return False, self.score

    @property
    def source_digest(self) -> str:
        """A hash of the source; "none" where the record does not have it."""
        return "none" if self.launch is None else self.launch.source.digest

    @classmethod
    def of(cls, entry: Entry, launch: KernelLaunch | None = None) -> KernelEntry:
        """An entry as one of a user kernel."""
        values = {field.name: getattr(entry, field.name) for field in fields(Entry)}
        return cls(**values, launch=launch)

    def launchable(self) -> KernelLaunch:
        """The source, arguments and geometry to launch the best configuration with.

        Raises:
            NotFoundError: if the record does not have it.
        """
        if self.launch is None:
            raise NotFoundError(
                f"the record of {self.config} has no source: it is from an earlier version, the "
                "source with its headers was too large, or its options or headers name files "
                "elsewhere; call `autotune.tune_kernel` again, which measures nothing twice"
            )
        return self.launch


def word_of(place: int) -> str:
    """The word of a plan for the argument at a position, counted from 0."""
    return f"argument {place}"


def scratch_word(place: int) -> str:
    """The word of a plan for the scratch memory at a position."""
    return f"scratch {place}"


VALUE, SCRATCH = "=...", "[scratch]"
"""The ends of the texts of arguments that the configuration determines: a number, and memory."""


def determined(arguments: Sequence[str]) -> list[int]:
    """The positions of those arguments of a `KernelCall` that the configuration determines."""
    return [place for place, text in enumerate(arguments) if text.endswith((VALUE, SCRATCH))]


_STRUCTURE = re.compile(r"struct(\d{1,5})\{")


def structure_bytes(text: str) -> int:
    """Bytes of a structure, given its layout in a `KernelCall`; 0 for other types."""
    match = _STRUCTURE.match(text)
    return int(match[1]) if match else 0


def argument_type(text: str) -> ArgumentType | int:
    """The type of an argument in a `KernelCall`: `pointer` for `float32[4096]`, `u64` for a
    texture, a number of bytes for a structure.

    Raises:
        ValueError: for a number of an unknown type.
    """
    name, number, _ = text.partition("=")
    if text.startswith(TEXTURE):
        return "u64"
    if not number:
        return "pointer"
    if size := structure_bytes(name):
        return size
    if name not in SCALARS:
        raise ValueError(f"argument {text!r} is of no type that a kernel takes")
    return SCALARS[name]


NOT_VERIFIED = "not verified"
"""`KernelRecord.verified` where no result was compared with anything."""


@dataclass(frozen=True)
class KernelRecord(TuningRecord):
    """The record of a user kernel, called with certain arguments.

    Attributes:
        call: the kernel's name and its arguments.
        verified: the configuration, or the kernel, whose results stood in for a reference; empty
            with a reference; `NOT_VERIFIED` if nothing was compared.
    """

    entries: tuple[KernelEntry, ...]
    call: KernelCall
    verified: str = ""

    FOLDER: ClassVar[str] = "kernels"

    @property
    def title(self) -> str:
        """The call's text."""
        return str(self.call)

    @property
    def slug(self) -> str:
        """The call's slug."""
        return self.call.slug

    def __str__(self) -> str:
        """The lines of every record, that nothing was verified, and each of several kernels."""
        text = super().__str__()
        if self.verified == NOT_VERIFIED:
            text = f"{text}, {NOT_VERIFIED}"
        return "\n".join([text, *self.step_lines])

    @property
    def step_lines(self) -> tuple[str, ...]:
        """The name and geometry of each of several kernels, in their order."""
        launch = self.best.launch
        if launch is None or not launch.steps:
            return ()
        return tuple(
            f"{step.name}: {geometry}{', cooperative' if step.cooperative else ''}"
            for step, geometry in zip(launch.steps, launch.geometries, strict=True)
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Words that name it on a command line: the kernel, the call and the call's slug."""
        name = self.call.name
        return name, name.rpartition("::")[2], self.title, self.slug

    @property
    def best(self) -> KernelEntry:
        """The entry with the least score, if the objective was a function; else the fastest, or the
        leanest of those tied with it (see `estimates.winner`)."""
        first = min(self.entries, key=lambda entry: entry.rank)
        return winner(self.entries) if first.score is None else first
