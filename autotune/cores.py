"""The cores this process may use: the scheduler's affinity and the limits of its control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available() -> int:
    """Number of cores whose time this process can use, at least 1.

    A container limited to two cores' worth of time on a machine of 128 counts 2: more threads would
    only be throttled.
    """
    if hasattr(os, "sched_getaffinity"):
        schedulable = len(os.sched_getaffinity(0))
    else:
        schedulable = os.cpu_count() or 1
    return max(1, min([schedulable, *_quotas()]))


def _quotas() -> Iterator[int]:
    """The limits of the control groups (version 2) of this process, in cores, rounded up.

    Each ancestor of a group limits it too. In a container the membership may name a path of the
    host, which is missing here; the container's own group is then the root.
    """
    with suppress(OSError, ValueError):
        for line in MEMBERSHIP.read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            group = CGROUPS / path.strip("/")
            for folder in () if controllers else (group, *group.parents):
                # Without a limit the quota is "max", and the root of the machine has no file.
                with suppress(OSError, ValueError, ZeroDivisionError):
                    quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
                    yield math.ceil(int(quota) / int(period))
