"""The command line: verbs, options and exit statuses."""

from __future__ import annotations

import errno
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache as cached
from typing import Annotated, Any, TextIO

import typer

from autotune import environment, settings
from autotune.cli import (
    cache,
    comparing,
    devices,
    explaining,
    export,
    kernels,
    ladder,
    occupancy,
    report,
    trials,
    tuning,
)
from autotune.cli.options import VerbCommand, VerbGroup
from autotune.cli.output import Interrupted, show_line
from autotune.errors import AutotuneError, UnsavedError
from autotune.version import __version__

VERBS: tuple[Callable[..., None], ...] = (
    devices.doctor,
    devices.device,
    occupancy.occupancy,
    occupancy.explore,
    tuning.tune,
    kernels.tune_kernel,
    tuning.best,
    explaining.explain,
    trials.trials,
    trials.dashboard,
    ladder.ladder,
    report.report,
    export.export,
    comparing.check,
)

UNWRITTEN = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of writing, which name no file where it is standard output."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits: 0 done, 1 failed, 2 usage, 3 nothing found, 130 interrupted.

    An error is one line on standard error.
    """
    words = sys.argv[1:] if arguments is None else arguments
    with _written_output(), warnings.catch_warnings():
        warnings.showwarning = _show_warning
        for line in environment.misspelt(settings.VARIABLES):
            print(f"warning: {line}", file=sys.stderr)
        try:
            _app()(_normalised(words), prog_name="autotune")
        except AutotuneError as error:
            show_line(f"error: {error}", sys.stderr)
            if isinstance(error, UnsavedError):
                _print_record(error.record)
            sys.exit(error.exit_status)
        except OSError as error:
            if error.filename is None:  # see `_written_output`
                raise
            print(f"error: {error.filename}: {error.strerror}", file=sys.stderr)
            sys.exit(1)
        except (KeyboardInterrupt, Interrupted) as interrupt:
            show_line(": ".join(["interrupted", *interrupt.args]), sys.stderr)
            sys.exit(130)


@contextmanager
def _written_output() -> Iterator[None]:
    """Turns a standard output that cannot be written into one line and the exit status 1, and shows
    characters that its encoding lacks as escapes."""
    with suppress(AttributeError, ValueError):  # closed, or not a file
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        if error.filename is not None or error.errno not in UNWRITTEN:
            raise
        sys.stdout = None  # nor can what is left in its buffer
        if error.errno != errno.EPIPE:
            print(f"error: cannot write standard output: {error.strerror}", file=sys.stderr)
        sys.exit(1)


class Commands(Mapping[str, Any]):
    """The verbs as commands by their names, each built when it is first asked for.

    Building all of them takes longer than printing the help that lists them.
    """

    def __getitem__(self, name: str) -> Any:
        return _command(name)

    def __iter__(self) -> Iterator[str]:
        return iter((*map(_name, VERBS), "cache"))

    def __len__(self) -> int:
        return len(VERBS) + 1


class Verbs(VerbGroup):
    """The verbs. An interrupt leaves them as `Interrupted`: typer would drop a `KeyboardInterrupt`
    without a line."""

    commands: Commands  # type: ignore[assignment]

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = Commands()

    def list_commands(self, ctx: Any) -> list[str]:
        del ctx
        return [*self.commands]

    def help_of(self, name: str) -> str:
        return inspect.getdoc(_documented(name)) or ""

    def make_context(self, info_name: Any, args: Any, parent: Any = None, **extra: Any) -> Any:
        with _interrupts():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: Any) -> Any:
        with _interrupts():
            return super().invoke(ctx)


@contextmanager
def _interrupts() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted from None


def _print_record(record: object) -> None:
    """Prints a record that is in no file, in the form that `autotune cache import` reads."""
    from autotune.records import TuningRecord, codec

    if not isinstance(record, TuningRecord):
        return
    print("error: save standard output as a file and `autotune cache import` it", file=sys.stderr)
    print(codec.dumps(record).decode())


def _app() -> typer.Typer:
    # Without markup, typer does not import rich and prints errors as plain lines.
    app = typer.Typer(
        cls=Verbs,
        rich_markup_mode=None,
        no_args_is_help=True,
        add_completion=environment.home() is not None,  # it writes files there
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    return app


def _documented(name: str) -> Callable[..., None]:
    """The function whose docstring is the help of a verb.

    Raises:
        KeyError: if there is no such verb.
    """
    return {"cache": cache.overview, **{_name(verb): verb for verb in VERBS}}[name]


def _name(verb: Callable[..., None]) -> str:
    return verb.__name__.replace("_", "-")


@cached
def _command(name: str) -> Any:
    """The command of a verb."""
    verb = _documented(name)
    if name == "cache":
        app = cache.app()
    else:
        app = typer.Typer(rich_markup_mode=None, add_completion=False)
        app.command(cls=VerbCommand)(verb)
    command = typer.main.get_command(app)
    command.name = name
    return command


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Occupancy and tile-size autotuner for CUDA matrix multiplication."""


def _normalised(arguments: Sequence[str]) -> list[str]:
    """The arguments in the form that typer parses."""
    words = _repeated(_shapes(arguments), "--problem")
    if words[:1] == ["occupancy"]:
        words = _repeated(words, "--device")
        for option in ("--tile-width", *occupancy.STEPS):
            words = _repeated(words, option, r"\d")
    return words


def _shapes(arguments: Sequence[str]) -> list[str]:
    """Protects a shape such as `-1x8x8` from being parsed as an option, so that the check of shapes
    refuses it."""
    return [f" {word}" if re.match(r"-\d+(x|\.\.)", word) else word for word in arguments]


def _repeated(arguments: Sequence[str], option: str, value: str = "(?!-)") -> list[str]:
    """Repeats the option before each of several values: `--x 4 8` becomes `--x 4 --x 8`.

    A value begins with what the pattern `value` matches; the first may be anything.
    """
    words: list[str] = []
    inside = False
    for argument in arguments:
        first = inside and words[-1] == option
        further = inside and not first and re.match(value, argument) is not None
        if further:
            words.append(option)
        inside = argument == option or further or (first and not argument.startswith("-"))
        words.append(argument)
    return words


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    del category, filename, lineno, line
    show_line(f"warning: {message}", file or sys.stderr)
