"""The cache and the device that verbs about it take."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.output import show_json

if TYPE_CHECKING:
    from autotune.records import Store, TuningRecord
    from autotune.records.ranges import Range

OnDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Only this device: its name, its folder in the cache, or gpu.",
    ),
]

Kernels = Annotated[
    bool,
    typer.Option("--kernels", help="Take user kernels too: list their sources and options first."),
]


def opened_store() -> Store:
    """The user's cache."""
    from autotune import settings
    from autotune.records import Store

    return Store(settings.cache_dir())


def slug_of(store: Store, device: str | None) -> str | None:
    """The folder name of a device; None for all devices."""
    from autotune.targets import targets

    if device is None or any(path.name == device for path in store.root.glob("*/*/")):
        return device
    return targets.resolve(device).slug


def absorb(
    store: Store,
    contents: Callable[[], Iterable[TuningRecord | Range]],
    kernels: bool,
    json: bool,
) -> None:
    """Merges what other caches have, after it has read all of it once, and listed the user kernels
    or said that they are left out."""
    from dataclasses import asdict

    from autotune.maintenance import exchange
    from autotune.records import KernelRecord
    from autotune.report import cache
    from autotune.targets import targets

    own = [content for content in contents() if isinstance(content, KernelRecord)]
    if own and not json:
        left_out = f"user kernels skipped: {len(own)}; they bring source code, --kernels takes them"
        print(cache.kernels(own) if kernels else left_out)
    results = exchange.absorb(store, contents(), targets.here(), kernels=kernels)
    if json:
        listed = {"kernels": cache.kernels_json(own), "kernels_skipped": not kernels} if own else {}
        show_json({"arrivals": [asdict(result) for result in results]} | listed)
    else:
        print(cache.import_summary(results))
