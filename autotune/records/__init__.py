"""Records on disk: what tuning measured, by device and problem.

`record` holds the values, `store` the user's directory, `codec` the text of a file, `merging` how
two records become one, `standing` which of several records of a problem serves, `ranges` tuned
ranges, `bundle` many of both in one file (`compact` reads former ones), `shipped` the bundles that
come with the package, and `combined` the user's records beside the shipped ones.
"""

from __future__ import annotations

from autotune.records.combined import Records
from autotune.records.kernel_record import KernelRecord
from autotune.records.ordered import OrderedRecord
from autotune.records.record import Entry, FamilyRecord, Provenance, Record, TuningRecord
from autotune.records.store import MergeOutcome, Store

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
