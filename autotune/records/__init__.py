"""Records on disk: what tuning measured, by device and problem.

`record` holds the values, `store` the user's directory, `codec` the text of a file, `merging` how
two records become one, `ranges` tuned ranges, `bundle` many of both in one file (`compact` reads
former ones), `shipped` the bundles that come with the package, and `combined` the user's records
before the shipped ones.
"""

from autotune.records.combined import Records
from autotune.records.record import Entry, KernelRecord, Provenance, Record, TuningRecord
from autotune.records.store import MergeOutcome, Store

__all__ = [
    "Entry",
    "KernelRecord",
    "MergeOutcome",
    "Provenance",
    "Record",
    "Records",
    "Store",
    "TuningRecord",
]
