"""Candidates that crashed or hung on a device and are not tried there again."""

from __future__ import annotations

from collections.abc import Callable

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.source_text import hash_of
from autotune.records import Store
from autotune.runners.base import Evidence, Failure

DANGEROUS = ("crash", "timeout")
"""Stages whose failures can also hit the next candidate, or the device."""


class Quarantine:
    """The store's quarantine for kernels of some sources: other sources may have fixed a kernel.

    Only live devices have one: a recording or a model is in no danger.
    """

    def __init__(self, store: Store, device: Device, evidence: Evidence, source: str) -> None:
        self._store, self._device = store, device
        self._live = evidence == "measured"
        self._source = source

    def barred(self) -> Callable[[Config], bool]:
        """Whether a configuration is quarantined."""
        if not self._live:
            return lambda _: False
        barred = self._store.quarantined(self._device)
        # Usually the quarantine is empty, and no configuration needs its key.
        return (lambda config: self._key(config) in barred) if barred else (lambda _: False)

    def note(self, tunable: object, config: Config, failure: Failure) -> None:
        """Quarantines a configuration if its failure endangers the device.

        Raises:
            CacheError: if the quarantine cannot be written.
        """
        if self._live and failure.stage in DANGEROUS:
            reason = f"{tunable}: {failure.stage}: {failure.reason}"
            self._store.quarantine(self._device, self._key(config), reason)

    def _key(self, config: Config) -> str:
        return f"{config}@{hash_of(self._source, config.family)}"
