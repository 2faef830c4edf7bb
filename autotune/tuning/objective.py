"""The objective of a tuning run: what of a trial it minimises."""

from __future__ import annotations

import math

from autotune.errors import AutotuneError, MissingError
from autotune.runners.base import Objective, Runner
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Search


def check(tunable: object, runner: Runner, options: Search) -> None:
    """Refuses an objective that the runner has no times or no energies for.

    Raises:
        AutotuneError: if cold times are wanted of predictions.
        MissingError: if energies are wanted and there are none.
    """
    if options.objective == "cold" and runner.evidence == "predicted":
        raise AutotuneError(
            f"{tunable}: cold times are not predicted; give a GPU or a recording as the device"
        )
    if options.meters and (fault := runner.energy_fault()) is not None:
        raise MissingError(f"{tunable}: {fault}")


def value(trial: Trial, objective: Objective) -> float:
    """Microseconds to minimise; the hot time of a trial too slow hot to be run cold."""
    time_us = trial.time(objective)
    return time_us if time_us < math.inf else trial.time_us
