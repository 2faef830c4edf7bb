"""Tables of records and answers, for `print` and for notebooks."""

from __future__ import annotations

import warnings

from rich.console import RenderableType

from autotune import settings
from autotune.lookup.answer import Answer
from autotune.records import TuningRecord, inventory
from autotune.report import listing, printing
from autotune.targets import targets
from autotune.targets.sources import DeviceLike

WIDTH = 120
"""Columns of the table in Python."""


class Table:
    """A record or an answer as a table; `print` shows it as text, a notebook as HTML."""

    def __init__(self, rendered: RenderableType) -> None:
        self._rendered = rendered

    def __str__(self) -> str:
        return printing.text_of(self._rendered)

    def _repr_html_(self) -> str:
        return printing.html_of(self._rendered)


def table(result: TuningRecord | Answer) -> Table:
    """A record or an answer with all its facts, as `autotune best` prints it.

        print(autotune.table(autotune.choose(300, 4096, 4096)))

    Args:
        result: a record of a GEMM or of a user kernel, or the answer to a look-up.
    """
    return Table(printing.rendered(result))


class RecordList(tuple[TuningRecord, ...]):
    """Records; `print` and notebooks show them as a table with a row for each."""

    def __str__(self) -> str:
        return printing.text_of(listing.render(listing.rows(self, targets.here())), WIDTH)

    def _repr_html_(self) -> str:
        return printing.html_of(listing.render(listing.rows(self, targets.here())), WIDTH)


def list_records(device: DeviceLike | None = None) -> RecordList:
    """All records of the cache, of GEMMs and of user kernels, by device and problem.

        for record in autotune.list_records("h100"):
            print(record)

    A file that cannot be read costs a warning. Records that the package ships are not listed.

    Args:
        device: only this device, as for `tune`; None for all.

    Raises:
        DeviceError: if there is no such device.
        MissingError: if it is a GPU of this machine and there is none.
    """
    slug = None if device is None else targets.resolve(device).slug
    items = inventory.listed(settings.cache_dir())
    for item in items:
        if item.fault is not None:
            warnings.warn(f"{item.path}: passed over: {item.fault}", stacklevel=2)
    listed = inventory.recorded(items)
    return RecordList(record for record in listed if slug in (None, record.device.slug))
