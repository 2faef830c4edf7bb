"""What the tests count on."""

from __future__ import annotations

import signal


def pytest_configure() -> None:
    """Has Ctrl-C end what the tests start: a shell that starts the suite in the background has it
    ignored, which processes hand on."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
