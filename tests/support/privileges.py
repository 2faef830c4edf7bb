"""A process that may not do what root may."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_privileges() -> Iterator[None]:
    """Drops root, which may read and write everything, for the duration."""
    user = os.geteuid()
    os.seteuid(user or 65534)
    try:
        yield
    finally:
        os.seteuid(user)
