"""The steps from the naive kernel to the best ones, side by side: in fp32, then on tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol

from autotune.candidates import cost, space
from autotune.candidates.recorded import current
from autotune.device import Device
from autotune.errors import NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import PRECISIONS, Problem
from autotune.records import Store
from autotune.runners.base import Candidate, Evidence, Failure, Measurement, Runner
from autotune.runners.recording import Recording
from autotune.tuning.evaluate import Compile, Trial, prepare

# All naive steps have 1024 threads a block, as the widest tile.
STEPS = {
    "naive, uncoalesced": Config.parse("naive:mapping=uncoalesced,block=32"),
    "naive, coalesced": Config.parse("naive:mapping=coalesced,block=32"),
    "tiled, TILE_WIDTH 8": Config.parse("tiled:tile_width=8,specialized=1"),
    "tiled, TILE_WIDTH 16": Config.parse("tiled:tile_width=16,specialized=1"),
    "tiled, TILE_WIDTH 32": Config.parse("tiled:tile_width=32,specialized=1"),
}
BEST = "simt, the best"
# Configurations that the model chooses among where nothing is recorded.
SURVEY = 3000


@dataclass(frozen=True)
class Part:
    """What became of each step in one precision, by name and in order, and of the vendor library
    if it was timed. Their problems differ in nothing but the precision."""

    problem: Problem
    steps: Mapping[str, Trial]
    baseline: Measurement | None


@dataclass(frozen=True)
class Ladder(Part):
    """The steps in fp32, and what goes on from there.

    Attributes:
        device: where they ran.
        evidence: what the times rest on.
        higher: the steps on tensor cores, one part for each precision.
        missing: steps that are not there, and why.
        untuned: steps that run what the model chose, as nothing is recorded for them.
    """

    device: Device
    evidence: Evidence
    higher: tuple[Part, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    untuned: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """All precisions, fp32 first."""
        return (Part(self.problem, self.steps, self.baseline), *self.higher)


class Place(Protocol):
    """Where a problem is measured, such as a `Target`."""

    @property
    def runner(self) -> Runner: ...


def climb(problem: Problem, best: Config, runner: Runner, compile: Compile) -> Ladder:
    """Verifies the steps and `best`, and times them interleaved."""
    part = _climbed(problem, STEPS | {BEST: best}, runner, compile)
    return Ladder(problem, part.steps, part.baseline, runner.device, runner.evidence)


def extended(
    ladder: Ladder,
    store: Store,
    opened: Callable[[Problem], AbstractContextManager[Place]],
    compile: Compile,
) -> Ladder:
    """The ladder with its steps on tensor cores, timed in each precision against the vendor there.

    A step runs the fastest recorded kernel of its family that is legal today, or else the model's
    choice.

    Args:
        ladder: as `climb` gives it.
        store: what is recorded.
        opened: gives the place where a problem is measured, until it is left.
        compile: makes a program of a template for an architecture.

    Raises:
        AutotuneError: if a precision cannot be measured at all.
    """
    missing, untuned, higher = dict(ladder.missing), list(ladder.untuned), list(ladder.higher)
    for problem in precisions(ladder.problem):
        configs: dict[str, Config] = {}
        for name, family in _families(problem).items():
            recorded = _recorded(problem, ladder.device, family, store)
            try:
                configs[name] = recorded or _guess(problem, ladder.device, family)
            except NotFoundError as error:
                missing[name] = str(error)
            else:
                untuned += [name] * (recorded is None)
        if configs:
            with opened(problem) as place:
                higher.append(_climbed(problem, configs, place.runner, compile))
    return replace(ladder, higher=tuple(higher), missing=missing, untuned=tuple(untuned))


def precisions(problem: Problem) -> tuple[Problem, ...]:
    """The problem in each precision that tensor cores have kernels for."""
    tensor_cores = (row.name for row in PRECISIONS.values() if row.on_tensor_cores)
    problems = (replace(problem, compute=compute) for compute in tensor_cores)
    return tuple(variant for variant in problems if _families(variant))


def _families(problem: Problem) -> dict[str, str]:
    """The families that compute a problem on tensor cores, by the names of their steps."""
    return {f"{problem.compute}, {name}": name for name in registry.on_ladder(problem)}


def _recorded(problem: Problem, device: Device, family: str, store: Store) -> Config | None:
    record = store.load(device, problem)
    configs = (entry.config for entry in record.entries) if record else ()
    return next(
        (
            config
            for config in configs
            if config.family == family and space.rejection(config, problem, device) is None
        ),
        None,
    )


def _guess(problem: Problem, device: Device, family: str) -> Config:
    """The model's choice among the legal configurations of a family.

    Raises:
        NotFoundError: if there are none; the message says why.
    """
    there = space.feasible(problem, device, family)
    if not there.configs:
        raise NotFoundError(f"{device.name} cannot run it ({', '.join(there.rejected)})")
    (_, config), *_ = cost.rank(space.spread(there.configs, SURVEY), problem, device)
    return config


def _climbed(
    problem: Problem, configs: Mapping[str, Config], runner: Runner, compile: Compile
) -> Part:
    prepared = {
        name: prepare(registry.plan(one, problem), runner, compile) for name, one in configs.items()
    }
    runner.baseline()  # a runner that knows it times it again among the candidates
    ready = [one for one in prepared.values() if isinstance(one, Candidate)]
    outcomes = iter(runner.rematch(ready))
    steps = {
        name: Trial(configs[name], one)
        if isinstance(one, Failure)
        else Trial.of(one.config, one.resources, next(outcomes), runner.device)
        for name, one in prepared.items()
    }
    return Part(problem, steps, runner.baseline())


def recorded(
    recording: Recording, find: Callable[[Problem], Recording | None] = lambda _: None
) -> Ladder:
    """The steps as they were recorded, without those that were not.

    Args:
        recording: of the problem in fp32.
        find: gives the recording in another precision; where there is none, None or a
            `NotFoundError`.

    Raises:
        NotFoundError: if the recording holds no time of a `simt` kernel.
    """
    problem, device = recording.problem, recording.device
    best = _fastest(recording, "simt")
    if best is None:
        raise NotFoundError(f"the recording of {problem} on {device.name} has no simt kernel")
    steps = _replayed(recording, STEPS | {BEST: best})
    missing: dict[str, str] = {}
    higher: list[Part] = []
    for one in precisions(problem):
        other, known = _found(one, find), dict[str, Config]()
        for name, family in _families(one).items():
            fastest = None if other is None else _fastest(other, family)
            if fastest is None:
                missing[name] = "not recorded"
            else:
                known[name] = fastest
        if other is not None and known:
            higher.append(Part(one, _replayed(other, known), other.baseline))
    return Ladder(problem, steps, recording.baseline, device, "replayed", tuple(higher), missing)


def _found(problem: Problem, find: Callable[[Problem], Recording | None]) -> Recording | None:
    try:
        return find(problem)
    except NotFoundError:
        return None


def _times(recording: Recording) -> dict[Config, float]:
    """Microseconds of what ran."""
    outcomes = ((row.config, row.outcome) for row in recording.rows)
    return {config: one.time_us for config, one in outcomes if isinstance(one, Measurement)}


def _fastest(recording: Recording, family: str) -> Config | None:
    times = _times(recording)
    todays = current(family, times, recording.problem, recording.device)
    return min(todays, key=lambda config: (times[config], str(config)), default=None)


def _replayed(recording: Recording, configs: Mapping[str, Config]) -> dict[str, Trial]:
    """The trials of the configurations, by name, as far as they ran."""
    ran = _times(recording)
    rows = {row.config: row for row in recording.rows if row.config in ran}
    return {
        name: Trial.of(one, rows[one].resources, rows[one].outcome, recording.device)
        for name, one in configs.items()
        if one in rows
    }
