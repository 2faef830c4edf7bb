"""Options that several verbs share, the problem's among them, and how help shows a verb."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from autotune.cli import completion
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.problem import ProblemDefaults

    ProblemOptions = ProblemDefaults
else:
    ProblemOptions = dict  # the problem's modules are imported by the verbs that need them

Verb = TypeVar("Verb", bound=Callable[..., Any])

PROBLEM_OPTIONS: Mapping[str, type] = {
    "compute": str,
    "layout": str,
    "batch": int,
    "epilogue": str,
    "output": str,
    "scale": str,
    "accumulate": str,
    "e5m2": str,
    "accuracy": str,
}
"""The options of a problem, by the keywords of `problem_of`. Help leaves them out, as the problem's
text states the same: see `autotune help shapes`."""


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
        moved: what replaces each verb of earlier versions.
    """

    command_class = VerbCommand

    def __init__(
        self,
        *arguments: Any,
        headings: Mapping[str, tuple[str, ...]] | None = None,
        moved: Mapping[str, str] | None = None,
        **attributes: Any,
    ) -> None:
        super().__init__(*arguments, **attributes)
        self.headings, self.moved = headings or {}, moved or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the verbs, in the order of the headings."""
        del ctx
        listed = [name for names in self.headings.values() for name in names]
        return listed or [*self.commands]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The verb that the first argument names.

        Raises:
            UsageError: if there is no such verb, or it has moved to another.
        """
        name = args[0]
        if name not in self.commands and not name.startswith("-"):
            if name in self.moved:
                raise UsageError(f"`{ctx.command_path} {name}` is now {self.moved[name]}")
            close = get_close_matches(name, self.commands, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"no verb {name!r}{hint or f'; see `{ctx.command_path} --help`'}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs below their headings."""
        headings = self.headings or {"Commands": tuple(self.list_commands(ctx))}
        width = max(map(len, self.commands))
        for heading, names in headings.items():
            rows = [(f"{name:{width}}", _first_sentence(self.commands[name])) for name in names]
            with formatter.section(heading):
                formatter.write_dl(rows)


def _first_sentence(command: click.Command) -> str:
    """The first sentence of a verb's help, without its period."""
    text = command.help or ""
    return " ".join(text.partition("\n\n")[0].split()).partition(". ")[0].removesuffix(".")


def problem_options(verb: Verb) -> Verb:
    """Gives a verb the options of a problem, hidden from its help. Its parameter `options` receives
    the stated ones."""

    @wraps(verb)
    def command(**values: Any) -> None:
        given_values = {name: values.pop(name) for name in PROBLEM_OPTIONS}
        stated = {name: value for name, value in given_values.items() if value is not None}
        verb(options=cast("ProblemOptions", stated), **values)

    for name, kind in PROBLEM_OPTIONS.items():
        command = click.option(f"--{name}", type=kind, hidden=True)(command)
    return cast("Verb", command)


def shape_argument(
    metavar: str,
    text: str,
    *,
    shell_complete: completion.Completer = completion.problems,
    **attributes: Any,
) -> Callable[[Verb], Verb]:
    """A positional argument for shapes; by default it completes recorded problems and the words of
    their texts."""
    return click.argument(
        "shapes" if attributes.get("nargs") == -1 else "shape",
        cls=VerbArgument,
        metavar=metavar,
        text=text,
        shell_complete=shell_complete,
        **attributes,
    )


def family_option(text: str) -> Callable[[Verb], Verb]:
    """The option of a kernel family; `text` says what it decides."""
    return click.option("--family", metavar="NAME", shell_complete=completion.families, help=text)


class ObjectiveOption(click.Option):
    """An option whose help ends with the table of objectives, which is imported for it alone."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option and its help."""
        from autotune.measure.objective import OBJECTIVES

        record = super().get_help_record(ctx)
        if record is None:
            return None
        listed = alternatives([f"{objective} ({objective.summary})" for objective in OBJECTIVES])
        return record[0], f"{record[1]}: {listed}.  [default: {OBJECTIVES[0]}]"


def objective_choice(text: str, **attributes: Any) -> Callable[[Verb], Verb]:
    """The option of an objective; `text` says what it decides."""
    return click.option(
        "--objective",
        cls=ObjectiveOption,
        metavar="NAME",
        shell_complete=completion.objectives,
        help=text,
        **attributes,
    )


device_option = click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=completion.devices,
    help="Device, such as gpu, replay:h100 or h100; see `autotune help devices`.  [default: gpu]",
)
objective_option = objective_choice("What chooses the kernel", default="hot")
batch_invariant_option = click.option(
    "--batch-invariant", is_flag=True, help="Answer from batch-invariant ranges alone."
)
json_option = click.option("--json", is_flag=True, help="Print JSON.")
hidden_device_option = click.option(
    "--device", metavar="NAME|FILE", hidden=True, shell_complete=completion.devices
)
"""The device of verbs that take it as an argument."""


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
