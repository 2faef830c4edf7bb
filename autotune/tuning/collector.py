"""Python's garbage collector while a search starts."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def paused() -> Iterator[None]:
    """Collects nothing meanwhile: the collector would walk through 100,000 new configurations again
    and again, which takes a quarter of the time to make and describe them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
