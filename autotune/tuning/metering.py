"""Times with energies: of every trial, or of the leaders alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from autotune.runners.base import BestTimes, Candidate, Failure, Measurement, Runner
from autotune.runners.energy import Energy
from autotune.tuning.options import Search

Outcome = Measurement | Failure


def measured(
    runner: Runner, candidate: Candidate, best: BestTimes | None, options: Search
) -> Outcome:
    """The outcome of a trial, with its energy if each has to have one."""
    outcome = runner.measure(candidate, best, options.objective)
    return _metered(runner, [candidate], [outcome])[0] if options.meters_trials else outcome


def rematched(runner: Runner, candidates: Sequence[Candidate], options: Search) -> list[Outcome]:
    """The leaders' outcomes, timed interleaved, with their energies if those are asked for."""
    outcomes = runner.rematch(candidates)
    return _metered(runner, candidates, outcomes) if options.meters else outcomes


def _metered(
    runner: Runner, candidates: Sequence[Candidate], outcomes: Sequence[Outcome]
) -> list[Outcome]:
    """The outcomes with energies; a candidate that fails now is a failure."""
    pairs = zip(candidates, outcomes, strict=True)
    timed = [candidate for candidate, outcome in pairs if isinstance(outcome, Measurement)]
    energies = iter(runner.energies(timed) if timed else ())
    return [
        _with_energy(outcome, next(energies)) if isinstance(outcome, Measurement) else outcome
        for outcome in outcomes
    ]


def _with_energy(measurement: Measurement, energy: Energy | Failure) -> Outcome:
    return energy if isinstance(energy, Failure) else replace(measurement, energy=energy)
