"""Completion in shells: recorded problems, words of shapes, devices, samplers and families.

A completer is a function of click's, so that verbs import what it lists when a shell asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, get_args

from click import Context, Parameter
from click.shell_completion import CompletionItem

from autotune.errors import AutotuneError

if TYPE_CHECKING:
    from autotune.records import TuningRecord


Completer = Callable[[Context, Parameter, str], list[CompletionItem]]


def matching(words: Iterable[str], incomplete: str) -> list[CompletionItem]:
    """The words that an incomplete one begins."""
    return [CompletionItem(word) for word in words if word.startswith(incomplete)]


def completer(words: Callable[[str], Iterable[str]]) -> Completer:
    """Completes a word from a list. A broken cache completes nothing."""

    def complete(ctx: Context, parameter: Parameter, incomplete: str) -> list[CompletionItem]:
        del ctx, parameter
        with suppress(AutotuneError, OSError):
            return matching(words(incomplete), incomplete)
        return []

    return complete


@completer
def problems(incomplete: str) -> Iterator[str]:
    """Recorded problems; behind a shape, the words that its text may go on with."""
    if not incomplete[:1].isalpha():
        yield from _shapes(incomplete, _records())


@completer
def named(incomplete: str) -> Iterator[str]:
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
    from autotune.records import inventory

    return inventory.recorded(inventory.scan(settings.cache_dir()))


@completer
def devices(_: str) -> Iterator[str]:
    """GPUs of this machine, shipped recordings, keys of the catalogue."""
    from autotune.device import catalogue
    from autotune.measure import recording

    yield from ("gpu", "gpu:1", "gpu:all")
    yield from (f"replay:{name}" for name in recording.names())
    yield from catalogue()


@completer
def samplers(_: str) -> Iterable[str]:
    """Names of samplers."""
    from autotune.tuning.options import Sampler

    return get_args(Sampler)


@completer
def efforts(_: str) -> Iterable[str]:
    """Names of efforts."""
    from autotune.tuning.options import Effort

    return get_args(Effort)


@completer
def families(_: str) -> Iterable[str]:
    """Names of kernel families."""
    from autotune.families import registry

    return registry.AUTO, *registry.FAMILIES


@completer
def formats(_: str) -> Iterable[str]:
    """Formats of an export."""
    from autotune.export import FORMATS

    return FORMATS
