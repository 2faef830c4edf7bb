"""Records on disk: one JSON file for each problem, device and kind of evidence."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.config import Config
from autotune.device import Device
from autotune.plan import Resources
from autotune.problem import Problem
from autotune.runner import Evidence, Measurement


@dataclass(frozen=True)
class Entry:
    """One recorded configuration of a problem, with all that was found out about it.

    `occupancy` is the share (0..1) of the SM's warps that can be resident, `limiter` the
    resources that bind it, joined by ` and `.
    """

    config: Config
    measurement: Measurement
    resources: Resources
    occupancy: float
    limiter: str


@dataclass(frozen=True)
class Provenance:
    """Where a record came from.

    Attributes:
        driver: the driver's CUDA version, such as `13.0`; empty if none was used.
        compiler: such as `NVRTC 13.0`.
        source: hash of the kernel sources.
        autotune: version of this package.
        date: UTC, ISO 8601.
        seed: the search's seed.
        trials: how many configurations were evaluated, failures included.
        seconds: wall time of the tuning.
    """

    driver: str
    compiler: str
    source: str
    autotune: str
    date: str
    seed: int
    trials: int
    seconds: float


@dataclass(frozen=True)
class Record:
    """What is known of a problem on a device: at most ten entries, fastest first.

    `baseline` is the vendor library's measurement, if one was made.
    """

    problem: Problem
    device: Device
    evidence: Evidence
    entries: tuple[Entry, ...]
    baseline: Measurement | None
    provenance: Provenance

    @property
    def best(self) -> Entry:
        """The fastest entry."""
        return self.entries[0]
