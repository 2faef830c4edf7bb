"""The steps from the naive kernel to the best one, side by side."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autotune.candidates import todays_of
from autotune.config import Config
from autotune.device import Device
from autotune.errors import NotFoundError
from autotune.evaluate import Compile, Trial, prepare
from autotune.problem import Problem
from autotune.recording import Recording
from autotune.runner import Candidate, Evidence, Failure, Measurement, Runner

# All naive steps have 1024 threads a block, as the widest tile.
STEPS = {
    "naive, uncoalesced": Config.parse("naive:mapping=uncoalesced,block=32"),
    "naive, coalesced": Config.parse("naive:mapping=coalesced,block=32"),
    "tiled, TILE_WIDTH 8": Config.parse("tiled:tile_width=8,specialized=1"),
    "tiled, TILE_WIDTH 16": Config.parse("tiled:tile_width=16,specialized=1"),
    "tiled, TILE_WIDTH 32": Config.parse("tiled:tile_width=32,specialized=1"),
}
BEST = "simt, the best"


@dataclass(frozen=True)
class Ladder:
    """What became of each step, by name and in order, and of the vendor library if it was timed."""

    problem: Problem
    device: Device
    evidence: Evidence
    steps: Mapping[str, Trial]
    baseline: Measurement | None


def climb(problem: Problem, best: Config, runner: Runner, compile: Compile) -> Ladder:
    """Verifies the steps and `best`, and times them interleaved."""
    configs = STEPS | {BEST: best}
    prepared = {name: prepare(one, problem, runner, compile) for name, one in configs.items()}
    runner.baseline()  # a runner that knows it times it again among the candidates
    ready = [one for one in prepared.values() if isinstance(one, Candidate)]
    outcomes = iter(runner.rematch(ready))
    steps = {
        name: Trial(configs[name], one)
        if isinstance(one, Failure)
        else Trial.of(one.config, one.resources, next(outcomes), runner.device)
        for name, one in prepared.items()
    }
    return Ladder(problem, runner.device, runner.evidence, steps, runner.baseline())


def recorded(recording: Recording) -> Ladder:
    """The steps as they were recorded, without those that were not.

    Raises:
        NotFoundError: if the recording holds no time of a `simt` kernel.
    """
    problem, device = recording.problem, recording.device
    times = {
        row: row.outcome.time_us for row in recording.rows if isinstance(row.outcome, Measurement)
    }
    rows = {row.config: row for row in times}
    simt = todays_of("simt", rows, problem, device)
    if not simt:
        raise NotFoundError(f"the recording of {problem} on {device.name} has no simt kernel")
    best = min(simt, key=lambda config: (times[rows[config]], str(config)))
    configs = STEPS | {BEST: best}
    steps = {
        name: Trial.of(one, rows[one].resources, rows[one].outcome, device)
        for name, one in configs.items()
        if one in rows
    }
    return Ladder(problem, device, "replayed", steps, recording.baseline)
