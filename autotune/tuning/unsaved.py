"""The record of a run that the store does not accept: kept elsewhere, or handed to the caller."""

from __future__ import annotations

from autotune.errors import CacheError, UnsavedError
from autotune.files import spare
from autotune.records import TuningRecord, codec


def unsaved(record: TuningRecord, why: CacheError, earlier: BaseException | None) -> UnsavedError:
    """Keeps a record that could not be saved; returns the error that says where it is.

    Args:
        record: the record.
        why: what prevented saving it.
        earlier: the error that had ended the run, if any; one of the journal is part of the result.
    """
    name = f"{record.device.slug}-{record.slug}.{record.evidence}.json"
    path = spare.keep(name, lambda _: codec.dumps(record))
    if path is None:
        fate = "the record is in no file"
    else:
        fate = f"the record is kept in {path}: `autotune cache import` it when there is room"
    message = f"{why}; {fate}"
    if isinstance(earlier, CacheError):
        message = f"{earlier}; the record cannot be saved either: {message}"
    return UnsavedError(
        message,
        record=None if path else record,
        trials=earlier.trials if isinstance(earlier, UnsavedError) else (),
    )
