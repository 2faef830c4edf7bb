"""The command line: verbs, options and exit statuses."""

from __future__ import annotations

import errno
import logging
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import click
from click.shell_completion import shell_complete

from autotune import settings
from autotune.cli import cache, device, export, lookup, topics, tuning
from autotune.cli.options import Interrupted, VerbGroup, show_line
from autotune.errors import AutotuneError, UnsavedError

NAME = "autotune"

COMPLETE = "_AUTOTUNE_COMPLETE"
"""The variable of the environment by which a shell asks click for completions."""

VERBS: dict[str, tuple[click.Command, ...]] = {
    "Tune and use": (tuning.tune, lookup.best, export.export),
    "Understand": (
        export.report,
        tuning.ladder,
        device.occupancy,
        device.explore,
        device.device,
        topics.help_,
    ),
    "Maintain": (device.doctor, cache.cache, lookup.check),
}
"""The verbs by their headings."""

UNWRITTEN = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF}
"""Errors of writing, which name no file where it is standard output."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs a command line and exits: 0 done, 1 failed, 2 usage, 3 nothing found, 130 interrupted.

    An error is one line on standard error.
    """
    words = sys.argv[1:] if arguments is None else arguments
    with _written_output(), _shown_warnings():
        for line in settings.misspelt():
            print(f"warning: {line}", file=sys.stderr)
        try:
            sys.exit(_run(words))
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


def _run(words: Sequence[str]) -> int:
    if instruction := os.environ.get(COMPLETE):
        return shell_complete(root(), {}, NAME, COMPLETE, instruction)
    try:
        with root().make_context(NAME, [*words]) as context:
            if not words:
                click.echo(context.get_help(), err=True)
                return 2
            context.command.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.ClickException as error:
        asked = getattr(error, "ctx", None)
        path = asked.command_path if asked else f"{NAME} {words[0]}"
        message = " ".join(error.format_message().split()).removesuffix(".")
        show_line(f"error: {message}; see `{path} --help`", sys.stderr)
        return error.exit_code
    return 0


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


def root() -> click.Group:
    """The command line as a group of verbs."""
    verbs = VerbGroup(
        NAME,
        help="Occupancy and tile-size autotuner for CUDA matrix multiplication.",
        commands={str(verb.name): verb for listed in VERBS.values() for verb in listed},
        headings={
            heading: [str(verb.name) for verb in listed] for heading, listed in VERBS.items()
        },
        no_args_is_help=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    version = click.option(
        "--version",
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_print_version,
        help="Print the version.",
    )
    version(verbs)
    return verbs


def _print_version(context: click.Context, _: click.Parameter, asked: bool) -> None:
    if asked:
        from autotune.version import __version__

        click.echo(__version__)
        context.exit()


def _print_record(record: object) -> None:
    """Prints a record that is in no file, in the form that `autotune cache import` reads."""
    from autotune.records import TuningRecord, codec

    if not isinstance(record, TuningRecord):
        return
    print("error: save standard output as a file and `autotune cache import` it", file=sys.stderr)
    print(codec.dumps(record).decode())


class _LineHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        show_line(f"{record.levelname.lower()}: {record.getMessage()}", sys.stderr)


@contextmanager
def _shown_warnings() -> Iterator[None]:
    """Prints warnings, and what the package logs, as a line each on standard error."""
    logger, handler = logging.getLogger(NAME), _LineHandler(logging.WARNING)
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, *_, **__: logger.warning("%s", message)
            yield
    finally:
        logger.removeHandler(handler)
