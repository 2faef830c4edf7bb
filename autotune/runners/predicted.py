"""A runner whose times come from the cost model; all its evidence is "predicted"."""

from __future__ import annotations

from collections.abc import Sequence

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.model import cost
from autotune.problem import Problem
from autotune.runners.base import BestTimes, Candidate, Evidence, Failure, Measurement
from autotune.runners.energy import Energy
from autotune.runners.objective import HOT, Objective


class PredictedRunner:
    """Replaces a device that is absent.

    Candidates are compiled for it, so that their registers, spills and occupancy are real; their
    times come from the cost model. Nothing runs and nothing is verified: a measurement has no
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

    @property
    def baseline_fault(self) -> str:
        """Always empty: nothing runs."""
        return ""

    def known(self) -> None:
        """None: any configuration can be predicted."""

    def resources(self, config: Config) -> Resources | None:
        """None: the caller compiles."""
        del config
        return None

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """The predicted hot time, from the compiled resources, whatever the objective."""
        del best, objective
        time_us = cost.predict(candidate.config, self._problem, self._device, candidate.resources)
        return Measurement(time_us, samples=0)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """The predicted times, which have no noise."""
        return [self.measure(candidate, None) for candidate in candidates]

    def examine(self, candidate: Candidate) -> Failure | None:
        """None: nothing runs."""
        del candidate
        return None

    def energy_fault(self) -> str:
        """Nothing measures."""
        return "energies are not predicted; give a GPU of this machine as the device"

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        """Failures, each with the fault."""
        return [Failure("launch", self.energy_fault()) for _ in candidates]

    def baseline(self) -> Measurement | None:
        """None: no vendor library runs."""
        return None

    @property
    def baseline_ready(self) -> bool:
        """Always true: nothing has to be loaded."""
        return True

    def close(self) -> None:
        """Does nothing: no resources are held."""
