"""Records on disk: what tuning measured, by device and problem.

`record` holds the values, `store` the user's directory, `codec` the text of a file, `merging` how
two records become one, `standing` which of several records of a problem serves, `ranges` tuned
ranges, `bundle` many of both in one file (`compact` reads former ones), `shipped` the bundles that
come with the package, and `combined` the user's records beside the shipped ones. The package itself
can be called: `autotune.records()` lists the cache.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

from autotune.records.combined import Records
from autotune.records.kernel_record import KernelRecord
from autotune.records.ordered import OrderedRecord
from autotune.records.record import Entry, FamilyRecord, Provenance, Record, TuningRecord
from autotune.records.store import MergeOutcome, Store

if TYPE_CHECKING:
    from autotune.api.listing import RecordList
    from autotune.targets.sources import DeviceLike

__all__ = [
    "Entry",
    "FamilyRecord",
    "KernelRecord",
    "MergeOutcome",
    "OrderedRecord",
    "Provenance",
    "Record",
    "Records",
    "Store",
    "TuningRecord",
]


class _CallableModule(ModuleType):
    """This package, which has the name of a public function."""

    def __call__(self, device: DeviceLike | None = None) -> RecordList:
        from autotune.api.listing import records

        return records(device)


sys.modules[__name__].__class__ = _CallableModule
