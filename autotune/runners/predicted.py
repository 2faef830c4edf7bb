"""A runner that answers from the cost model: nothing runs, and everything is marked predicted."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.candidates import cost
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.runners.base import Candidate, Evidence, Failure, Measurement, Objective


class PredictedRunner:
    """Stands in for a device that is not there.

    Candidates are really compiled for it, so their registers, spills and occupancy are real;
    their times are the cost model's. Nothing ran and nothing was verified: a measurement has no
    samples and no error.
    """

    def __init__(self, problem: Problem, device: Device) -> None:
        self._problem = problem
        self._device = device

    @property
    def device(self) -> Device:
        """The device that is predicted."""
        return self._device

    @property
    def evidence(self) -> Evidence:
        """Always `predicted`."""
        return "predicted"

    def known(self) -> None:
        """None: any configuration can be predicted."""

    def resources(self, config: Config) -> Resources | None:
        """None: the caller compiles."""
        del config
        return None

    def measure(
        self, candidate: Candidate, best_us: float | None, objective: Objective = "hot"
    ) -> Measurement | Failure:
        """The predicted time, from the compiled resources. It is a hot one, whatever is asked."""
        del best_us, objective
        time_us = cost.predict(candidate.config, self._problem, self._device, candidate.resources)
        return Measurement(time_us, samples=0)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """The predicted times again; they have no noise."""
        return [self.measure(candidate, None) for candidate in candidates]

    def baseline(self) -> Measurement | None:
        """None: there is no vendor library to time."""
        return None

    @property
    def baseline_ready(self) -> bool:
        """Always: there is nothing to wait for."""
        return True

    def close(self) -> None:
        """Nothing is held."""
