"""Which process a claim is of, and whether that process is still there."""

from __future__ import annotations

import os
import socket
import threading
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

SILENT_S = 900.0
"""Seconds without a new claim after which a process of another host, which cannot be looked at, is
taken for gone. A process that tunes claims something every few seconds."""


@dataclass(frozen=True)
class Owner:
    """A journal that a process has opened.

    Attributes:
        host: name of the machine.
        pid: of the process.
        started: when the process began; whoever gets its pid later began at another time.
        run: tells apart the journals that one process opens.
    """

    host: str
    pid: int
    started: str
    run: str

    @classmethod
    def here(cls) -> Owner:
        """A new one, of this process."""
        pid = os.getpid()
        return cls(socket.gethostname(), pid, _started(pid) or "", uuid.uuid4().hex)

    @classmethod
    def of(cls, attributes: Mapping[str, Any]) -> Owner:
        """The one that wrote the attributes of a trial."""
        return cls(*(attributes[name] for name in ("host", "pid", "started", "run")))

    def attributes(self) -> dict[str, Any]:
        """What to write into a trial."""
        return asdict(self)

    @property
    def thread(self) -> str:
        """How the names of the journal's threads begin, of which there are some until it ends."""
        return f"journal-{self.run}"

    def gone(self, silent_s: float) -> bool:
        """Whether the process has ended, or has to be taken for that, or has closed the journal.

        Args:
            silent_s: seconds since its last sign of life, where it is of another host.
        """
        if self.host != socket.gethostname():
            return silent_s > SILENT_S
        if _started(self.pid) != (self.started or None):
            return True
        return self.pid == os.getpid() and not any(
            thread.name.startswith(self.thread) for thread in threading.enumerate()
        )


def _started(pid: int) -> str | None:
    """When a process began, in ticks of a boot of the machine; None if it has ended."""
    try:
        # The name in front of the last bracket may hold blanks and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    # One that was killed and not yet waited for does nothing more.
    return None if fields[0] in "ZX" else f"{boot}:{fields[19]}"
