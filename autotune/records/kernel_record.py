"""Records of user kernels, whose configurations can be loaded and launched."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar

from msgspec import Meta

from autotune.errors import NotFoundError
from autotune.families.config import Config
from autotune.families.plan import SCALARS, Argument, ArgumentType, Launch, LaunchPlan
from autotune.problem.call import KernelCall
from autotune.records.kernel_source import KernelSource
from autotune.records.record import Entry, TuningRecord
from autotune.runners.estimates import winner

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


@dataclass(frozen=True)
class KernelLaunch:
    """One configuration of a user kernel, with all that launching it takes."""

    source: KernelSource
    call: KernelCall
    geometry: Geometry

    def plan(self, config: Config) -> LaunchPlan:
        """The single launch; its pointers and numbers are words, `argument 0` and so on."""
        arguments = tuple(
            Argument(argument_type(text), word_of(place))
            for place, text in enumerate(self.call.arguments)
        )
        geometry, template = self.geometry, self.source.template(config)
        launch = Launch(template, geometry.grid, geometry.block, geometry.shared, arguments)
        return LaunchPlan(config, (launch,), local_memory=True)


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


def argument_type(text: str) -> ArgumentType:
    """The type of an argument in a `KernelCall`, such as `pointer` for `float32[4096]`.

    Raises:
        ValueError: for a number of an unknown type.
    """
    name, number, _ = text.partition("=")
    if number and name not in SCALARS:
        raise ValueError(f"argument {text!r} is of no type that a kernel takes")
    return SCALARS[name] if number else "pointer"


@dataclass(frozen=True)
class KernelRecord(TuningRecord):
    """The record of a user kernel, called with certain arguments.

    Attributes:
        call: the kernel's name and its arguments.
        verified: the configuration whose results stood in for a reference; empty with a reference.
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
