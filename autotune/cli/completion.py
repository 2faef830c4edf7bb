"""Completion in shells: recorded problems, words of shapes, devices, samplers and families."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from click import Command, Context, Parameter
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    get_completion_class,
    shell_complete,
    split_arg_string,
)

from autotune.errors import AutotuneError, UsageError

if TYPE_CHECKING:
    from autotune.records import TuningRecord

VARIABLE = "_AUTOTUNE_COMPLETE"
"""The variable of the environment by which a shell asks for completions."""

SHELLS = ("bash", "zsh", "fish")

Completer = Callable[[Context, Parameter, str], list[CompletionItem]]


def _completer(words: Callable[[str], Iterable[str]]) -> Completer:
    """Completes a word from a list. A broken cache completes nothing."""

    def complete(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, parameter
        items: list[CompletionItem] = []
        with suppress(AutotuneError, OSError):
            items = [CompletionItem(w) for w in words(incomplete) if w.startswith(incomplete)]
        return items

    return complete


def _problems(incomplete: str) -> Iterator[str]:
    """Recorded problems; behind a shape, the words that its text may go on with."""
    if not incomplete[:1].isalpha():
        yield from _shapes(incomplete, _records())


def _named(incomplete: str) -> Iterator[str]:
    """Problems, and names of recorded user kernels."""
    from autotune.records import KernelRecord

    records = _records()
    if not incomplete[:1].isalpha():
        yield from _shapes(incomplete, records)
    yield from (record.names[1] for record in records if isinstance(record, KernelRecord))


def _shapes(begun: str, records: Iterable[TuningRecord]) -> Iterator[str]:
    """The problems of records, and the texts that the begun shape may become."""
    from autotune.problem.fields import continued
    from autotune.records import Record

    yield from (str(record.problem) for record in records if isinstance(record, Record))
    yield from continued(begun)


def _records() -> list[TuningRecord]:
    from autotune import settings
    from autotune.maintenance import inventory

    return inventory.recorded(inventory.scan(settings.cache_dir()))


def _devices(incomplete: str) -> Iterator[str]:
    """GPUs of this machine, shipped recordings, keys of the catalogue; files after a path."""
    from autotune.device import catalogue
    from autotune.runners import recording

    del incomplete
    yield from ("gpu", "gpu:1", "gpu:all")
    yield from (f"replay:{name}" for name in recording.names())
    yield from catalogue()


def _samplers(incomplete: str) -> Iterable[str]:
    from typing import get_args

    from autotune.tuning.options import Sampler

    del incomplete
    return get_args(Sampler)


def _efforts(incomplete: str) -> Iterable[str]:
    from typing import get_args

    from autotune.tuning.options import Effort

    del incomplete
    return get_args(Effort)


def _objectives(incomplete: str) -> Iterable[str]:
    from autotune.runners.objective import OBJECTIVES

    del incomplete
    return OBJECTIVES


def _families(incomplete: str) -> Iterable[str]:
    from autotune.families import registry
    from autotune.families.registry import AUTO

    del incomplete
    return AUTO, *registry.FAMILIES


def _formats(incomplete: str) -> Iterable[str]:
    from autotune.export import FORMATS

    del incomplete
    return FORMATS


problems, named = _completer(_problems), _completer(_named)
devices, samplers, efforts = map(_completer, (_devices, _samplers, _efforts))
families, formats = _completer(_families), _completer(_formats)
objectives = _completer(_objectives)


class BashWords(BashComplete):
    """Completion in bash, which ends words at `:` and `=`.

    The word is read from the whole line; bash gets the part of a completion that follows the last
    `:` or `=`.
    """

    source_template = """
%(complete_func)s() {
    local IFS=$'\\n' completion
    COMPREPLY=()
    local line=${COMP_LINE:0:COMP_POINT}
    for completion in $(env COMP_LINE="$line" %(complete_var)s=bash_complete "$1"); do
        case $completion in
            dir,*) compopt -o dirnames ;;
            file,*) compopt -o default ;;
            *) COMPREPLY+=("${completion#plain,}") ;;
        esac
        [[ $completion == *[:=] ]] && compopt -o nospace
    done
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words before the last, and the last one, which is incomplete."""
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        incomplete = "" if line[-1:].isspace() or not words else words.pop()
        value = re.sub(r"^--[\w-]+=", "", incomplete)
        self._cut = len(re.sub(r"[^:=]*$", "", value))
        return words, incomplete

    def format_completion(self, item: CompletionItem) -> str:
        """The end of a completion that the shell appends."""
        return f"{item.type},{item.value[self._cut :]}"


def answer(root: Command, name: str) -> int | None:
    """Prints the completions that a shell asked for; returns the exit status, None if none did."""
    instruction = os.environ.get(VARIABLE)
    if not instruction:
        return None
    add_completion_class(BashWords)
    return shell_complete(root, {}, name, VARIABLE, instruction)


def script(root: Command, name: str, shell: str) -> str:
    """The script that makes a shell complete the command line.

    Raises:
        UsageError: for another shell than bash, zsh and fish.
    """
    add_completion_class(BashWords)
    chosen = get_completion_class(shell_of(shell))
    assert chosen is not None
    return chosen(root, {}, name, VARIABLE).source()


def install(text: str, name: str, shell: str, home: Path) -> str:
    """Writes the script where a shell looks for it; returns a sentence that says so."""
    place, startup, line = {
        "bash": (f".bash_completions/{name}.sh", ".bashrc", "source '{path}'"),
        "zsh": (f".zfunc/_{name}", ".zshrc", "fpath+=~/.zfunc; autoload -Uz compinit; compinit"),
        "fish": (f".config/fish/completions/{name}.fish", None, ""),
    }[shell_of(shell)]
    path = home / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    if startup is not None:
        file, wanted = home / startup, line.format(path=path)
        content = file.read_text() if file.exists() else ""
        if wanted not in content.splitlines():
            file.write_text(f"{content.rstrip()}\n{wanted}\n".lstrip())
    return f"{path}: completion installed; start a new terminal"


def shell_of(shell: str) -> str:
    """The name of a shell, by default of the one in use.

    Raises:
        UsageError: for another shell than bash, zsh and fish.
    """
    name = shell or Path(os.environ.get("SHELL", "")).name
    if name not in SHELLS:
        raise UsageError(f"no completion for the shell {name!r}; give one of {', '.join(SHELLS)}")
    return name
