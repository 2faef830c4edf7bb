"""Candidates that are not to be tried again on a device, as they have crashed or hung there."""

from __future__ import annotations

from collections.abc import Callable

from autotune.device import Device
from autotune.families.config import Config
from autotune.records import Store
from autotune.runners.base import Evidence, Failure

# What may happen to the next candidate, or to the device, as well.
DANGERS = ("crash", "timeout")


class Quarantine:
    """The store's, of configurations of one hash of the sources: others may have mended them.

    It holds for the device itself alone: a recording or a model is in no danger.
    """

    def __init__(self, store: Store, device: Device, evidence: Evidence, source: str) -> None:
        self._store, self._device = store, device
        self._live = evidence == "measured"
        self._source = f"@{source}"

    def barred(self) -> Callable[[Config], bool]:
        """Whether a configuration is in it."""
        if not self._live:
            return lambda _: False
        keys = self._store.quarantined(self._device)
        barred = {key.removesuffix(self._source) for key in keys if key.endswith(self._source)}
        # As a rule none is, and no configuration has to be spelt out.
        return (lambda config: str(config) in barred) if barred else (lambda _: False)

    def note(self, subject: object, config: Config, failure: Failure) -> None:
        """Bars a configuration of a subject if it failed in a way that endangers the device.

        Raises:
            CacheError: if that cannot be written.
        """
        if self._live and failure.stage in DANGERS:
            reason = f"{subject}: {failure.stage}: {failure.reason}"
            self._store.quarantine(self._device, f"{config}{self._source}", reason)
