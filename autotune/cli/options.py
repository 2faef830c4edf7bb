"""Options that several verbs share, their completion in shells, help, and printing."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, TypeVar, get_args

import click
from click import Context, Parameter
from click.shell_completion import CompletionItem

from autotune.errors import AutotuneError, UsageError
from autotune.files.decoding import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from autotune.measure.objective import Objective
    from autotune.records import TuningRecord

Completer = Callable[[Context, Parameter, str], list[CompletionItem]]


def matching(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The words that an incomplete one begins."""
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def completer(words: Callable[[], Iterable[str]]) -> Completer:
    """Completes a word from a list. A broken cache completes nothing."""

    def complete(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, parameter
        with suppress(AutotuneError, OSError):
            return matching(words(), incomplete)
        return []

    return complete


@completer
def complete_problems() -> Iterator[str]:
    """Recorded problems."""
    from autotune.records import Record

    return (str(record.problem) for record in _records() if isinstance(record, Record))


@completer
def complete_named() -> Iterator[str]:
    """Problems, and names of recorded user kernels."""
    from autotune.records import KernelRecord, Record

    for record in _records():
        if isinstance(record, Record):
            yield str(record.problem)
        elif isinstance(record, KernelRecord):
            yield record.names[1]


def _records() -> list[TuningRecord]:
    from autotune import settings
    from autotune.records import inventory

    return inventory.recorded(inventory.scan(settings.cache_dir()))


@completer
def complete_devices() -> Iterator[str]:
    """GPUs of this machine, shipped recordings, keys of the catalogue."""
    from autotune.device import catalogue
    from autotune.measure import recording

    yield from ("gpu", "gpu:1", "gpu:all")
    yield from (f"replay:{name}" for name in recording.names())
    yield from catalogue()


@completer
def complete_samplers() -> Iterable[str]:
    """Names of samplers."""
    from autotune.tuning.options import Sampler

    return get_args(Sampler)


@completer
def complete_efforts() -> Iterable[str]:
    """Names of efforts."""
    from autotune.tuning.options import Effort

    return get_args(Effort)


@completer
def complete_families() -> Iterable[str]:
    """Names of kernel families."""
    from autotune.families import registry

    return registry.AUTO, *registry.FAMILIES


@completer
def complete_formats() -> Iterable[str]:
    """Formats of an export."""
    from autotune.export import FORMATS

    return FORMATS


Verb = TypeVar("Verb", bound=Callable[..., Any])

_KERNEL = re.compile(r"\s*[A-Za-z_]")
"""The start of a user kernel's name; shapes start with a number."""


def names_kernel(word: str) -> bool:
    """Whether a word of the command line names a user kernel instead of a shape."""
    return _KERNEL.match(word) is not None


class VerbArgument(click.Argument):
    """A positional argument that the help describes."""

    def __init__(self, names: Any, *, text: str = "", **attributes: Any) -> None:
        super().__init__(names, **attributes)
        self.text = text


class VerbCommand(click.Command):
    """A verb whose help describes its arguments too."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the arguments, then the options."""
        rows = [
            (re.sub(r"[\[\]]", "", parameter.metavar or ""), parameter.text)
            for parameter in self.params
            if isinstance(parameter, VerbArgument)
        ]
        if rows:
            with formatter.section("Arguments"):
                formatter.write_dl(rows)
        super().format_options(ctx, formatter)


class VerbGroup(click.Group):
    """Verbs under headings; the help has the first sentence of each, whole.

    Args:
        headings: names of verbs by the headings above them.
    """

    command_class = VerbCommand

    def __init__(
        self,
        *arguments: Any,
        headings: Mapping[str, Sequence[str]] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.headings = headings

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the verbs, in the order in which they were added."""
        del ctx
        return [*self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the first argument names.

        Raises:
            UsageError: if there is no such verb.
        """
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            close = get_close_matches(name, self.commands, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"no verb {name!r}{hint or f'; see `{ctx.command_path} --help`'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs below their headings."""
        headings = self.headings or {"Commands": self.list_commands(ctx)}
        width = max(map(len, self.commands))
        for heading, names in headings.items():
            rows = [(f"{name:{width}}", _first_sentence(self.commands[name])) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _first_sentence(command: click.Command) -> str:
    text = command.help or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


def shape_argument(
    metavar: str, text: str, *, shell_complete: Completer = complete_problems, **attributes: Any
) -> Callable[[Verb], Verb]:
    """A positional argument for shapes; by default it completes recorded problems."""
    return click.argument(
        "shapes" if attributes.get("nargs") == -1 else "shape",
        cls=VerbArgument,
        metavar=metavar,
        text=text,
        shell_complete=shell_complete,
        **attributes,
    )


def path_option(name: str, metavar: str, text: str, **attributes: Any) -> Callable[[Verb], Verb]:
    """An option for the path of a file or folder."""
    path = click.Path(path_type=Path)
    return click.option(name, type=path, metavar=metavar, help=text, **attributes)


def family_option(text: str) -> Callable[[Verb], Verb]:
    """The option of a kernel family; `text` says what it decides."""
    return click.option("--family", metavar="NAME", shell_complete=complete_families, help=text)


class ObjectiveOption(click.Option):
    """The option of an objective. The table of objectives ends its help, and is imported for help
    and completion alone.

    Args:
        timed: whether it takes times alone, no energy.
    """

    def __init__(self, names: Any, *, timed: bool = False, **attributes: Any) -> None:
        super().__init__(names, metavar="NAME", **attributes)
        self.timed = timed

    def type_cast_value(self, ctx: click.Context, value: Any) -> Objective | None:
        """The objective of a word.

        Raises:
            UsageError: for an unknown one.
        """
        from autotune.measure.objective import objective_named

        del ctx
        return None if value is None else objective_named(value, self.objectives)

    @property
    def objectives(self) -> Sequence[Objective]:
        """The objectives that it takes, the default first."""
        from autotune.measure.objective import OBJECTIVES, TIMES

        return TIMES if self.timed else [*OBJECTIVES]

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option and its help."""

        record = super().get_help_record(ctx)
        if record is None:
            return None
        listed = alternatives([f"{each} ({each.summary})" for each in self.objectives])
        return record[0], f"{record[1]}: {listed}.  [default: {self.objectives[0]}]"

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The objectives that a word begins."""
        del ctx
        return matching(map(str, self.objectives), incomplete)


def objective_choice(text: str, **attributes: Any) -> Callable[[Verb], Verb]:
    """The option of an objective; `text` says what it decides."""
    return click.option("--objective", cls=ObjectiveOption, help=text, **attributes)


device_option = click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=complete_devices,
    help="Device, such as gpu, replay:h100 or h100; see `autotune help devices`.  [default: gpu]",
)

objective_option = objective_choice("What chooses the kernel", default="hot")

batch_invariant_option = click.option(
    "--batch-invariant", is_flag=True, help="Answer from batch-invariant ranges alone."
)

json_option = click.option("--json", is_flag=True, help="Print JSON.")


def device_argument(text: str) -> Callable[[Verb], Verb]:
    """A positional device, which a hidden `--device` names too, as for the other verbs."""
    complete: Any = {"shell_complete": complete_devices}
    option = click.option("--device", metavar="NAME|FILE", hidden=True, **complete)
    argument = click.argument(
        "name", cls=VerbArgument, required=False, metavar="[DEVICE]", text=text, **complete
    )
    return lambda verb: argument(option(verb))


def alternatives(words: Sequence[str]) -> str:
    """Words as a list in a sentence, such as `gp, tpe or random`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def refuse(subject: str, **stated: object) -> None:
    """Refuses options that do not apply to what was asked.

    Raises:
        UsageError: if one of them was given.
    """
    names = [f"--{name.replace('_', '-')}" for name, value in stated.items() if value]
    if names:
        raise UsageError(f"{subject} takes no {', '.join(names)}; leave it out")


def seconds_of(text: str, name: str, examples: str, units: str) -> float:
    """Seconds of a text such as `60s` or `1.5h`.

    Args:
        text: the value of an option.
        name: the noun of the message.
        examples: the forms that the message gives.
        units: letters of the units; a blank allows a number without one, of seconds.

    Raises:
        UsageError: for another form.
    """
    match = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smhd]?)", text.strip().lower())
    if match is None or (match[2] or " ") not in units:
        raise UsageError(f"malformed {name} {text!r}; give {examples}")
    return float(match[1]) * _SECONDS[match[2]]


_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


class Interrupted(Exception):
    """A signal ended the verb; the text, if any, says what became of its work."""


def show(renderable: RenderableType) -> None:
    """Prints texts and tables: as wide as the terminal, elsewhere without wrapping a line."""
    from autotune.report.tables import PlainConsole, natural_width

    # A closed standard output is None.
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = PlainConsole()
    if not terminal:
        console = PlainConsole(width=natural_width(console, renderable))
    console.print(renderable, crop=False)


def show_line(text: str, file: TextIO | None = None) -> None:
    """Prints one line, whatever a path or a reason in it holds."""
    print(visible(text), file=file)


def show_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows as CSV with a header."""
    import csv

    if sys.stdout is None:  # closed
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def show_json(data: object) -> None:
    """Prints data as indented JSON."""
    print(json.dumps(data, indent=2, allow_nan=False))
