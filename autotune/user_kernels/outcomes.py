"""Metrics and objectives of the user: functions of a configuration's time, resources and values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import UsageError
from autotune.families.config import Value
from autotune.families.plan import Resources
from autotune.measure.measurement import Energy
from autotune.records import Entry
from autotune.tuning.evaluate import Trial


@dataclass(frozen=True)
class KernelResult:
    """A measured configuration, as metrics and objectives see it; `result["TILE"]` is the value of
    a parameter.

    Attributes:
        params: the value of each parameter.
        time_us: median time in microseconds, hot.
        spread_us: its spread.
        cold_us: median time with L2 flushed; None if not measured.
        threads: threads a block.
        registers: registers a thread.
        shared: bytes of shared memory a block.
        local: bytes of local memory a thread.
        occupancy: share (0..1) of the SM's warps that can be resident.
        energy: of a run; None if not measured (see `energy` of `Search`).
    """

    params: Mapping[str, Value]
    time_us: float
    spread_us: float
    cold_us: float | None
    threads: int
    registers: int
    shared: int
    local: int
    occupancy: float
    energy: Energy | None = None

    @classmethod
    def of(cls, entry: Entry) -> KernelResult:
        """The result in an entry."""
        measured, resources = entry.measurement, entry.resources
        return cls(
            entry.config.values,
            *(measured.time_us, measured.spread_us, measured.cold_us),
            *_sizes(resources),
            entry.occupancy,
            measured.energy,
        )

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    @property
    def joules(self) -> float:
        """The energy of a run in joules."""
        return self._metered.joules

    @property
    def power_w(self) -> float:
        """The mean power in watts."""
        return self._metered.power_w

    @property
    def clock_mhz(self) -> float:
        """The mean clock of the SMs in MHz."""
        return self._metered.clock_mhz

    @property
    def _metered(self) -> Energy:
        if self.energy is None:
            raise UsageError("energies were not measured; give search=autotune.Search(energy=True)")
        return self.energy


Metric = Callable[[KernelResult], float]
"""A number that follows from a result."""


@dataclass(frozen=True)
class Score:
    """The user's objective: a function whose value is minimised."""

    function: Metric

    def __call__(self, trial: Trial) -> float:
        """The value of a trial; infinite for a failure.

        Raises:
            UsageError: if the function fails, or its value is not a positive number.
        """
        entry = trial.entry
        return math.inf if entry is None else self.of(entry)

    def of(self, entry: Entry) -> float:
        """The value of an entry; raises as for a trial."""
        value = evaluated("objective", self.function, entry)
        if not value > 0:
            raise UsageError(
                f"the objective of {entry.config} is {value!r}; return a number above 0, of which "
                "the least is best: 1 / x where x is maximised"
            )
        return value


def evaluated(name: str, function: Metric, entry: Entry) -> float:
    """The value of a metric for an entry.

    Raises:
        UsageError: if the function fails, or its value is not a finite number.
    """
    try:
        value = float(function(KernelResult.of(entry)))
    except Exception as error:
        raise UsageError(
            f"{name} fails for {entry.config}: {type(error).__name__}: {error}; it is called with "
            "a result that has time_us, cold_us, registers, shared, occupancy and the parameters"
        ) from error
    if not math.isfinite(value):
        raise UsageError(f"{name} of {entry.config} is {value!r}; return a finite number")
    return value


def check_metrics(metrics: Mapping[str, Metric] | None) -> dict[str, Metric]:
    """Metrics by their names.

    Raises:
        UsageError: for a name that is none, or something else than a function.
    """
    for name, function in (metrics or {}).items():
        if not isinstance(name, str) or not name.strip() or not callable(function):
            raise UsageError(
                f"metric {name!r} is {function!r}; give a name and a function of a result"
            )
    return dict(metrics or {})


def _sizes(resources: Resources) -> tuple[int, int, int, int]:
    return resources.threads, resources.registers, resources.shared, resources.local
