"""The cache and the device that verbs about it take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from autotune.records import Store

OnDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Only this device: its name, its folder in the cache, or gpu.",
    ),
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
