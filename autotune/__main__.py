"""The process of the command line: `python -m autotune`, and the script `autotune`.

SIGINT, SIGTERM and SIGHUP end it alike, with one line and the exit status 128 plus the signal's
number. While a verb runs they raise `KeyboardInterrupt`, so that measurements are recorded and
workers end; another signal cuts short the step that follows the first. At other times nothing can
be lost and the process ends at once. A signal that is ignored at the start, as under `nohup`, stays
ignored.
"""

# Nothing handles signals while the package and this module are imported, so they import little.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn

LINE = b"interrupted\n"

INTERRUPTED = 130
"""The exit status of `cli.main` after a `KeyboardInterrupt`, which it has reported."""

AGAIN_S = 0.01
"""An interrupt that was raised where Python ignores exceptions is raised again after this time."""


def main() -> None:
    """Runs the command line and ends the process."""
    if os.name == "nt":
        sys.exit("error: autotune does not run on Windows; install it in WSL")
    try:
        signals = Signals()
    except KeyboardInterrupt:
        _end(INTERRUPTED, LINE)
    try:
        from autotune import cli

        signals.raised = True
        cli.main()
    except BaseException as error:
        signals.raised = False
        if signals.first is None:
            if isinstance(error, SystemExit) and isinstance(error.code, int) and _busy():
                _end(error.code)
            raise
        if isinstance(error, SystemExit) and isinstance(error.code, int):
            _end(signals.status if error.code == INTERRUPTED else error.code)
        # An interrupt may surface as another error, such as that of a class being defined.
        _end(signals.status, LINE)


class Signals:
    """Handles the signals that end the process.

    Attributes:
        first: the number of the first one that was raised; None before.
        raised: whether they raise `KeyboardInterrupt`, or end the process at once.
    """

    def __init__(self) -> None:
        import signal

        self.first: int | None = None
        self.raised = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self._handle)
        signal.signal(signal.SIGALRM, self._handle)  # see `_raise_later`
        sys.unraisablehook = self._raise_later

    @property
    def status(self) -> int:
        """The exit status of a process that the first signal ended."""
        return INTERRUPTED if self.first is None else 128 + self.first

    def _handle(self, number: int, frame: "FrameType | None") -> None:
        del frame
        self.first = self.first or number
        if not self.raised:
            _end(self.status, LINE)
        raise KeyboardInterrupt

    def _raise_later(self, ignored: "sys.UnraisableHookArgs") -> None:
        """Repeats an interrupt that Python ignores, as in a `__del__`; reports other errors."""
        import signal

        if isinstance(ignored.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_S)
        else:
            sys.__unraisablehook__(ignored)


def _busy() -> bool:
    """Whether a thread, such as a running compilation, would delay the process's exit."""
    import threading

    threads = {*threading.enumerate()} - {threading.main_thread()}
    return any(not thread.daemon for thread in threads)


def _end(status: int, line: bytes = b"") -> "NoReturn":
    """Ends the process without waiting for its threads, such as those that compile."""
    from contextlib import suppress

    for stream in (sys.stdout, sys.stderr):
        # It may be closed, gone with its terminal, or being flushed.
        with suppress(AttributeError, OSError, ValueError, RuntimeError):
            stream.flush()
    with suppress(OSError):
        os.write(2, line)
    os._exit(status)


if __name__ == "__main__":
    main()
