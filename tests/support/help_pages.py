"""The verbs with their options, and the help of every verb and topic."""

from __future__ import annotations

import os
from collections.abc import Iterator
from unittest.mock import patch

import click

from autotune import cli, settings
from autotune.cli.topics import TOPICS

VERBS_MOST, OPTIONS_MOST = 16, 90
"""The largest numbers of verbs, and of options that their help shows, `--help` left out."""


def verbs() -> Iterator[tuple[str, click.Command]]:
    """The verbs without verbs below them, by the words that run them."""
    yield from _below(cli.root(), ())


def shown_options(verb: click.Command) -> list[click.Option]:
    """The options that the help of a verb shows, without `--help`."""
    options = [parameter for parameter in verb.params if isinstance(parameter, click.Option)]
    return [option for option in options if not option.hidden]


def pages() -> list[str]:
    """The lines of the help of every verb and topic, at 80 columns."""
    with (
        patch.dict(os.environ, {"COLUMNS": "80", "HOME": "/"}),
        patch.object(settings, "home", lambda: "/"),
    ):
        root = cli.root()
        words = ["", "cache", *(name for name, _ in verbs())]
        shown = [
            (f"autotune {name} --help".replace("  ", " "), _help(root, name)) for name in words
        ]
        shown += [(f"autotune help {name}", _topic(root, name)) for name in TOPICS]
    return [line for command, text in shown for line in (f"$ {command}", *text.splitlines(), "")]


def _below(group: click.Group, words: tuple[str, ...]) -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from _below(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def _help(root: click.Group, name: str) -> str:
    context = click.Context(root, info_name=cli.NAME, **root.context_settings)
    for word in name.split():
        assert isinstance(context.command, click.Group)
        context = click.Context(context.command.commands[word], parent=context, info_name=word)
    return context.get_help()


def _topic(root: click.Group, name: str) -> str:
    formatter = click.Context(root).make_formatter()
    TOPICS[name](formatter)
    return formatter.getvalue().rstrip("\n")
