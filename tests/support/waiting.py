"""Waiting for what another thread or process does, however loaded the machine is."""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 60.0
"""Seconds after which a wait counts as hung. Only a failing test waits that long."""


def happens(event: Callable[[], bool]) -> bool:
    """Waits until `event` holds; false if it never does."""
    deadline = time.monotonic() + HANG_S
    while not event() and time.monotonic() < deadline:
        time.sleep(0.01)
    return event()
