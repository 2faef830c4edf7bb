"""The cores this process may use: the scheduler's affinity and the limits of its control groups."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def available() -> int:
    """Number of cores whose time this process can use, at least 1.

    A container limited to two cores' worth of time on a machine of 128 counts 2: more threads would
    only be throttled.
    """
    return max(1, min([_schedulable(), *_quotas()]))


def _schedulable() -> int:
    """Cores that threads of this process may be scheduled on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quotas() -> Iterator[int]:
    """The limits of the control groups of this process, in whole cores, rounded up."""
    for folder in _groups():
        limit = _quota(folder)
        if limit is not None:
            yield limit


def _groups() -> Iterator[Path]:
    """The control groups that may limit this process, innermost first, of either version.

    Each of its ancestors limits a group too. In a container the membership may name a path of the
    host, which is missing here; the container's own group is then the root.
    """
    try:
        lines = MEMBERSHIP.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = CGROUPS / "cpu" if controllers else CGROUPS
        group = root / path.strip("/")
        yield group
        for parent in group.parents:
            if not parent.is_relative_to(root):
                break
            yield parent


def _quota(folder: Path) -> int | None:
    """The cores' worth of time that a group may use, rounded up; None without a limit."""
    try:
        if (folder / "cpu.max").exists():
            quota, period = (folder / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text(encoding="utf-8")
            period = (folder / "cpu.cfs_period_us").read_text(encoding="utf-8")
        # Without a limit the quota is "max" or -1.
        return math.ceil(int(quota) / int(period)) if int(quota) > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None
