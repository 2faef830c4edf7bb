"""The limits of a process that compiles one program."""

from __future__ import annotations

import resource
from contextlib import suppress

SECONDS = 300.0
"""Longest time. The package's slowest kernel takes 15 s, large ones of CUTLASS a few minutes."""

MEMORY = 8 << 30
"""Most bytes of private memory; kernels that include CUTLASS take 2 to 4 GiB."""


def too_long(compiler: str) -> str:
    """The log of a compiler that was stopped."""
    return f"error: {compiler} took longer than {SECONDS:g} s and was stopped"


def too_large(compiler: str) -> str:
    """The log of a compiler that ran out of memory."""
    return f"error: {compiler} needs more than the {MEMORY >> 30} GiB of memory that it may take"


def restrict(process: int) -> None:
    """Limits the memory of a process and of those that it starts."""
    with suppress(OSError):  # it has ended, or has lower limits already
        resource.prlimit(process, resource.RLIMIT_DATA, (MEMORY, MEMORY))
