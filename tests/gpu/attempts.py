"""Repeats assertions about times: other processes may use the GPU, and clocks change."""

from __future__ import annotations

from collections.abc import Callable

ATTEMPTS = 5


def repeated(attempt: Callable[[], None], attempts: int = ATTEMPTS) -> None:
    """Calls a function until its assertions about times hold, for a few attempts at most.

    Raises:
        AssertionError: that of the last attempt if all fail.
    """
    try:
        attempt()
    except AssertionError:
        if attempts == 1:
            raise
        repeated(attempt, attempts - 1)
