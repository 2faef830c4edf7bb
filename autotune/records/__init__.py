"""Records on disk: what tuning measured, by device and problem.

`record` holds the values and says which of several records of a problem serves, `kernel_record`
those of user kernels, `codec` the text of a file, `merging` how two records become one, `ranges`
tuned ranges, `bundle` many of both in one file, `shipped` the bundles that come with the package.
`store` is the user's directory, alone and with the shipped records beside it; `inventory` lists,
checks and prunes its files, and `exchange` exports, imports and merges records.
"""

from __future__ import annotations

from autotune.records.kernel_record import KernelRecord
from autotune.records.record import Entry, FamilyRecord, Provenance, Record, TuningRecord
from autotune.records.store import MergeOutcome, Records, Store

__all__ = [
    "Entry",
    "FamilyRecord",
    "KernelRecord",
    "MergeOutcome",
    "Provenance",
    "Record",
    "Records",
    "Store",
    "TuningRecord",
]
