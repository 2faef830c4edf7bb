"""Repeats statements about times: other processes may use the GPU, and clocks change."""

from __future__ import annotations

from collections.abc import Callable

ATTEMPTS = 5


def repeated(attempt: Callable[[], None], attempts: int = ATTEMPTS) -> None:
    """Calls a function whose assertions about times have to hold in one of a few attempts.

    Raises:
        AssertionError: that of the last attempt if all fail.
    """
    try:
        attempt()
    except AssertionError:
        if attempts == 1:
            raise
        repeated(attempt, attempts - 1)
