"""Shared behaviour of the worker's benches: verify, then time; turn failures into values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from autotune.device import Device
from autotune.errors import MissingError, RunnerError
from autotune.gpu.energy_meter import EnergyMeter
from autotune.gpu.judgement import Verdict
from autotune.gpu.session import Run, Session
from autotune.gpu.timing import Samples, Timer, WarmRun
from autotune.runners.base import BestTimes, Failure, Measurement
from autotune.runners.energy import Energy
from autotune.runners.estimates import Estimate
from autotune.runners.objective import HOT, Objective

T = TypeVar("T")

Ready = tuple[Run, Verdict]
"""A verified run."""

Rematch = tuple[list[Measurement | Failure], Measurement | Failure | None]
"""The candidates' outcomes in their order, and the baseline's."""

Energies = tuple[list[Energy | Failure], Energy | None]
"""The candidates' energies in their order, and the baseline's."""


class BaseBench:
    """The part of a bench that does not depend on what is computed.

    An error that leaves the CUDA context intact is a `Failure`. One that breaks it (an illegal
    access) is raised as the session's `Error`, and the process has to end.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._timer = Timer(session)

    @property
    def device(self) -> Device:
        """The GPU."""
        return self._session.device

    @property
    def driver(self) -> str:
        """The CUDA version of the driver, such as `13.0`."""
        return self._session.driver

    def _timed(
        self, ready: Ready, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement:
        """A measurement, with few samples if it is clearly slower than the best."""
        return _measurement(self._timer.time(_warm(ready), best, objective), ready[1])

    def _interleaved(self, entries: Sequence[Ready | Failure]) -> list[Measurement | Failure]:
        """Measurements of the verified runs, timed interleaved; failures as they are."""
        warm_runs = [_warm(entry) for entry in entries if not isinstance(entry, Failure)]
        samples = iter(self._timer.interleave(warm_runs))
        return [
            entry if isinstance(entry, Failure) else _measurement(next(samples), entry[1])
            for entry in entries
        ]

    def energy_fault(self) -> str | None:
        """Why there are no energies; None if there are."""
        try:
            self._session.energy_counter()
        except MissingError as error:
            return str(error)
        return None

    def _metered(self, entries: Sequence[Ready | Failure]) -> list[Energy | Failure] | str:
        """Energies of the verified runs; failures as they are. A text says why the counter fails,
        which no run is to blame for."""
        runs = [_warm(entry) for entry in entries if not isinstance(entry, Failure)]
        try:
            counter = self._session.energy_counter()
            energies = iter(EnergyMeter(self._session, self._timer, counter).measure(runs))
        except (MissingError, RunnerError) as error:
            return str(error)
        return [entry if isinstance(entry, Failure) else next(energies) for entry in entries]

    def _guarded(self, attempt: Callable[[], T]) -> T | Failure:
        try:
            return attempt()
        except self._session.Error as error:
            if self._session.broken():
                raise
            return Failure("launch", str(error))


def _measurement(samples: Samples, verdict: Verdict) -> Measurement:
    hot = Estimate.of(samples.hot)
    cold = Estimate.of(samples.cold) if samples.cold else None
    return Measurement(
        time_us=hot.median,
        spread_us=hot.spread,
        samples=hot.samples,
        cold_us=cold.median if cold else None,
        cold_spread_us=cold.spread if cold else None,
        error=verdict.error,
        tolerance=verdict.tolerance,
        relative_error=verdict.relative,
    )


def _warm(ready: Ready) -> WarmRun:
    run, verdict = ready
    return WarmRun(run, verdict.time_us)
