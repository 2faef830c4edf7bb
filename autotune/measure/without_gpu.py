"""Runners that need no GPU: one answers from a recording, one from the cost model."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from random import Random

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.recording import KernelRecording, Recording
from autotune.measure.runner import Candidate
from autotune.model import cost
from autotune.problem import Problem

# Rounds of a rematch on a GPU, unless the leaders take more than 80 ms together.
ROUNDS = 25
# The quartiles of a normal distribution lie this many standard deviations from its mean.
_QUARTILE = 0.6745


class RunnerWithoutGpu:
    """Shared behaviour of runners that run nothing: nothing to verify, to wait for or to close."""

    baseline_fault = ""
    baseline_ready = True

    def examine(self, candidate: Candidate) -> Failure | None:
        """None: nothing runs."""
        del candidate
        return None

    def close(self) -> None:
        """Does nothing: no resources are held."""


class ReplayRunner(RunnerWithoutGpu):
    """Answers each recorded configuration with its recorded outcome.

    A time is the recorded median with one sample's noise, drawn from the recorded spread, so a
    search sees about the noise of the device. The noise depends only on `seed` and on the order of
    the calls.

    Attributes:
        device: the recorded device.
    """

    evidence: Evidence = "replayed"

    def __init__(self, recording: Recording | KernelRecording, seed: int = 0) -> None:
        self.device = recording.device
        self._baseline = recording.baseline
        self._rows = {row.config: row for row in recording.rows}
        self._random = Random(seed)

    def known(self) -> Sequence[Config]:
        """The recorded configurations, of all families."""
        return tuple(self._rows)

    def resources(self, config: Config) -> Resources | None:
        """The recorded resources; None for a configuration that was not recorded."""
        row = self._rows.get(config)
        return None if row is None else row.resources

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        """The recorded outcome, whatever is asked for; a cold time has no noise."""
        del best, objective
        return self._outcome(candidate, 1)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """The recorded outcomes with fresh noise, that of the median over a GPU's rounds."""
        return [self._outcome(candidate, ROUNDS) for candidate in candidates]

    def energy_fault(self) -> str | None:
        """Why there are no energies: none was recorded."""
        outcomes = (row.outcome for row in self._rows.values())
        if any(isinstance(each, Measurement) and each.energy is not None for each in outcomes):
            return None
        return (
            f"the recording of {len(self._rows):,} configurations has no energies; give a GPU of "
            "this machine as the device, or a recording of a search for energy"
        )

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        """The recorded energies; a failure for a configuration without."""
        return [self._energy(candidate.config) for candidate in candidates]

    def baseline(self) -> Measurement | None:
        """The recorded time of the vendor library."""
        return self._baseline

    def _energy(self, config: Config) -> Energy | Failure:
        row = self._rows.get(config)
        energy = row.outcome.energy if row and isinstance(row.outcome, Measurement) else None
        return energy or Failure("launch", f"no energy of {config} was recorded")

    def _outcome(self, candidate: Candidate, samples: int) -> Measurement | Failure:
        row = self._rows.get(candidate.config)
        if row is None:
            return Failure("launch", f"{candidate.config} was not recorded")
        if isinstance(row.outcome, Failure):
            return row.outcome
        return noisy(row.outcome, self._random, samples)


def noisy(recorded: Measurement, random: Random, samples: int = 1) -> Measurement:
    """A recorded measurement whose time has the noise of the median of `samples` samples."""
    # A spread as large as the time says only that the time is unknown; exp of more overflows.
    deviation = min(1.0, recorded.spread_us / recorded.time_us) / _QUARTILE
    factor = math.exp(statistics.median(random.gauss(0.0, deviation) for _ in range(samples)))
    return replace(recorded, time_us=recorded.time_us * factor)


class PredictedRunner(RunnerWithoutGpu):
    """Replaces a device that is absent; its times come from the cost model.

    Candidates are compiled for it, so that their registers, spills and occupancy are real. Nothing
    runs and nothing is verified: a measurement has no samples and no error.

    Attributes:
        device: the device that is predicted.
    """

    evidence: Evidence = "predicted"

    def __init__(self, problem: Problem, device: Device) -> None:
        self._problem = problem
        self.device = device

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
        time_us = cost.predict(candidate.config, self._problem, self.device, candidate.resources)
        return Measurement(time_us, samples=0)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        """The predicted times, which have no noise."""
        return [self.measure(candidate, None) for candidate in candidates]

    def energy_fault(self) -> str:
        """Why there are no energies: nothing measures."""
        return "energies are not predicted; give a GPU of this machine as the device"

    def energies(self, candidates: Sequence[Candidate]) -> list[Energy | Failure]:
        """Failures, each with the fault."""
        return [Failure("launch", self.energy_fault()) for _ in candidates]

    def baseline(self) -> Measurement | None:
        """None: no vendor library runs."""
        return None
