"""What every bench of a worker does alike: it times what was verified, and survives failures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from autotune.device import Device
from autotune.gpu.session import Run, Session
from autotune.gpu.timing import Contestant, Samples, Timer
from autotune.gpu.verify import Verdict
from autotune.runners.base import Failure, Measurement, Objective
from autotune.runners.estimates import Estimate

T = TypeVar("T")

Ready = tuple[Run, Verdict]
"""A run that was verified."""

Rematch = tuple[list[Measurement | Failure], Measurement | None]
"""The candidates' measurements in their order, and the baseline's."""


class BaseBench:
    """The part of a bench that does not depend on what is computed.

    What leaves the CUDA context intact comes back as a `Failure`. What breaks it (an illegal
    access) surfaces as PyCUDA's `Error`, and the process is of no further use.
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
        self, ready: Ready, best_us: float | None, objective: Objective = "hot"
    ) -> Measurement:
        """A measurement with few samples if it is clearly slower than `best_us`."""
        return _measurement(self._timer.time(_contestant(ready), best_us, objective), ready[1])

    def _raced(self, entries: Sequence[Ready | Failure]) -> list[Measurement | Failure]:
        """Measurements of what was verified, timed interleaved; failures as they are."""
        racing = [_contestant(one) for one in entries if not isinstance(one, Failure)]
        samples = iter(self._timer.interleave(racing))
        return [
            one if isinstance(one, Failure) else _measurement(next(samples), one[1])
            for one in entries
        ]

    def _guarded(self, attempt: Callable[[], T]) -> T | Failure:
        try:
            return attempt()
        except self._session.cuda.Error as error:
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


def _contestant(ready: Ready) -> Contestant:
    run, verdict = ready
    return Contestant(run, verdict.time_us)
