"""The ladder: from the naive kernel to the best ones, in fp32 and on tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from autotune.device import Device
from autotune.errors import NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure.measurement import Evidence, Failure, Measurement
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate, Runner
from autotune.model import cost, space
from autotune.model.legality import as_tuned, current, is_legal
from autotune.model.space import sample
from autotune.problem import PRECISIONS, Problem
from autotune.records import Entry, Record, Records, Store
from autotune.records.record import BEST_FIRST
from autotune.tuning.pipeline import Compile, prepare
from autotune.tuning.trials import Trial

# Both naive steps have 1024 threads a block, as the widest tile.
STEPS = {
    "naive, uncoalesced": Config.parse("naive:mapping=uncoalesced,block=32"),
    "naive, coalesced": Config.parse("naive:mapping=coalesced,block=32"),
    "tiled, TILE_WIDTH 8": Config.parse("tiled:tile_width=8,specialized=1"),
    "tiled, TILE_WIDTH 16": Config.parse("tiled:tile_width=16,specialized=1"),
    "tiled, TILE_WIDTH 32": Config.parse("tiled:tile_width=32,specialized=1"),
}

BEST = "simt, the best"


@dataclass(frozen=True)
class Part:
    """The steps of one precision by name, in order, and the vendor baseline if it was timed.

    The problems of a ladder's parts differ only in precision.
    """

    problem: Problem
    steps: Mapping[str, Trial]
    baseline: Measurement | None


@dataclass(frozen=True)
class Ladder(Part):
    """The steps in fp32, followed by those on tensor cores.

    Attributes:
        device: device on which they ran.
        evidence: evidence of the times.
        higher: the steps on tensor cores, one part for each precision.
        missing: steps that are left out, and why.
        untuned: steps that run the cost model's choice, as nothing is recorded for them.
        interrupted: steps that run the best of a search that was interrupted.
    """

    device: Device
    evidence: Evidence
    higher: tuple[Part, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)
    untuned: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """All precisions, fp32 first."""
        return (Part(self.problem, self.steps, self.baseline), *self.higher)


@dataclass(frozen=True)
class LadderChoice:
    """The kernel of a step, and where it comes from: a search that ended, one that was interrupted,
    or the cost model."""

    config: Config
    source: Literal["tuned", "interrupted", "model"]

    @property
    def ended(self) -> bool:
        """Whether a search of it has ended."""
        return self.source == "tuned"


class LadderTarget(Protocol):
    """A target that measures one precision of the ladder, such as a `targets.Target`."""

    @property
    def runner(self) -> Runner: ...


def climb(problem: Problem, best: LadderChoice, runner: Runner, compile: Compile) -> Ladder:
    """Verifies the fp32 steps and `best`, and times them interleaved."""
    part = _measured(problem, STEPS | {BEST: best.config}, runner, compile)
    climbed = Ladder(problem, part.steps, part.baseline, runner.device, runner.evidence)
    return _sourced(climbed, {BEST: best})


def extended(
    ladder: Ladder,
    store: Store,
    opened: Callable[[Problem], AbstractContextManager[LadderTarget]],
    compile: Compile,
) -> Ladder:
    """The ladder with its steps on tensor cores, each precision timed with its vendor baseline.

    A step runs the `choice` of its family.

    Args:
        ladder: as `climb` returns it.
        store: the records.
        opened: opens the target that measures a problem.
        compile: makes a program of a template for an architecture.

    Raises:
        AutotuneError: if a precision cannot be measured at all.
    """
    missing, higher = dict(ladder.missing), list(ladder.higher)
    choices: dict[str, LadderChoice] = {}
    for problem in precisions(ladder.problem):
        configs: dict[str, Config] = {}
        for name, family in _families(problem).items():
            chosen = _choice_or_reason(problem, ladder.device, family, store)
            if isinstance(chosen, str):
                missing[name] = chosen
            else:
                choices[name], configs[name] = chosen, chosen.config
        if configs:
            with opened(problem) as target:
                higher.append(_measured(problem, configs, target.runner, compile))
    return _sourced(replace(ladder, higher=tuple(higher), missing=missing), choices)


def choice(problem: Problem, device: Device, family: str, store: Store) -> LadderChoice:
    """The fastest recorded kernel of a family that is legal today, or else the cost model's choice.

    Measured searches come before replayed and predicted ones, then searches that ended before
    interrupted ones.

    Raises:
        NotFoundError: if the device can run none; the message says why.
    """
    records = Records(store).load(device, problem), store.family(device, problem, family)
    entries = [(entry, record) for record in records if record for entry in record.entries]
    for entry, record in sorted(entries, key=_rank):
        card, interrupted = as_tuned(device, record.device), record.provenance.interrupted
        if entry.config.family == family and is_legal(entry.config, problem, card):
            return LadderChoice(entry.config, "interrupted" if interrupted else "tuned")
    configs = sample(problem, device, family)
    if not configs:
        reasons = space.feasible(problem, device, family).rejected
        raise NotFoundError(f"{device.name} cannot run it ({', '.join(reasons)})")
    (_, config), *_ = cost.rank(configs, problem, device)
    return LadderChoice(config, "model")


def precisions(problem: Problem) -> tuple[Problem, ...]:
    """The problem in each precision that kernels on tensor cores serve."""
    on_tensor_cores = (row.name for row in PRECISIONS.values() if row.on_tensor_cores)
    problems = (problem.in_precision(compute) for compute in on_tensor_cores)
    return tuple(in_precision for in_precision in problems if _families(in_precision))


def recorded(
    recording: Recording, find: Callable[[Problem], Recording | None] = lambda _: None
) -> Ladder:
    """The steps as they were recorded, without those that were not.

    Args:
        recording: recording of the problem in fp32.
        find: gives the recording in another precision; None, or raises `NotFoundError`, if there is
            none.

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
    for in_precision in precisions(problem):
        recording_of = _found(in_precision, find)
        fastest = {
            name: None if recording_of is None else _fastest(recording_of, family)
            for name, family in _families(in_precision).items()
        }
        configs = {name: config for name, config in fastest.items() if config is not None}
        missing |= {name: "not recorded" for name in fastest if name not in configs}
        if recording_of is not None and configs:
            steps_of = _replayed(recording_of, configs)
            higher.append(Part(in_precision, steps_of, recording_of.baseline))
    return Ladder(problem, steps, recording.baseline, device, "replayed", tuple(higher), missing)


def _families(problem: Problem) -> dict[str, str]:
    """The families that compute a problem on tensor cores, by the names of their steps."""
    return {f"{problem.compute}, {name}": name for name in registry.on_ladder(problem)}


def _sourced(ladder: Ladder, choices: Mapping[str, LadderChoice]) -> Ladder:
    """The ladder that says which of its steps were not tuned to the end."""
    by_source = {
        source: tuple(name for name, choice in choices.items() if choice.source == source)
        for source in ("model", "interrupted")
    }
    return replace(
        ladder,
        untuned=ladder.untuned + by_source["model"],
        interrupted=ladder.interrupted + by_source["interrupted"],
    )


def _measured(
    problem: Problem, configs: Mapping[str, Config], runner: Runner, compile: Compile
) -> Part:
    prepared = {
        name: prepare(registry.plan(config, problem), runner, compile)
        for name, config in configs.items()
    }
    runner.baseline()  # once it is known, the rematch times it interleaved with the candidates
    ready = [step for step in prepared.values() if isinstance(step, Candidate)]
    outcomes = iter(_timed(ready, runner))
    steps = {
        name: Trial(configs[name], step)
        if isinstance(step, Failure)
        else Trial.of(step, next(outcomes), runner.device)
        for name, step in prepared.items()
    }
    return Part(problem, steps, runner.baseline())


def _timed(candidates: Sequence[Candidate], runner: Runner) -> list[Measurement | Failure]:
    """The candidates' times, whatever their accuracy beside the vendor's library.

    A rematch refuses a verified candidate that is less accurate than a search may record, such as
    the naive kernel beside a cuBLAS that splits K. A ladder shows it with its error: it is measured
    by itself.
    """
    return [
        runner.measure(candidate, None)
        if isinstance(outcome, Failure) and outcome.stage == "accuracy"
        else outcome
        for candidate, outcome in zip(candidates, runner.rematch(candidates), strict=True)
    ]


def _found(problem: Problem, find: Callable[[Problem], Recording | None]) -> Recording | None:
    try:
        return find(problem)
    except NotFoundError:
        return None


def _times(recording: Recording) -> dict[Config, float]:
    """Microseconds of the configurations that ran."""
    return {
        row.config: row.outcome.time_us
        for row in recording.rows
        if isinstance(row.outcome, Measurement)
    }


def _fastest(recording: Recording, family: str) -> Config | None:
    times = _times(recording)
    usable = current(family, times, recording.problem, recording.device)
    return min(usable, key=lambda config: (times[config], str(config)), default=None)


def _replayed(recording: Recording, configs: Mapping[str, Config]) -> dict[str, Trial]:
    """The trials of the configurations that ran, by name."""
    times = _times(recording)
    rows = {row.config: row for row in recording.rows if row.config in times}

    def trial(config: Config) -> Trial:
        plan, row = registry.plan(config, recording.problem), rows[config]
        return Trial.of(Candidate(config, plan, (), row.resources), row.outcome, recording.device)

    return {name: trial(config) for name, config in configs.items() if config in rows}


def _choice_or_reason(
    problem: Problem, device: Device, family: str, store: Store
) -> LadderChoice | str:
    """The `choice`, or why the device can run none."""
    try:
        return choice(problem, device, family, store)
    except NotFoundError as error:
        return str(error)


def _rank(row: tuple[Entry, Record]) -> tuple[int, bool, float]:
    """The order of records' entries: by evidence, whether the search ended, and time."""
    entry, record = row
    interrupted = record.provenance.interrupted
    return BEST_FIRST.index(record.evidence), interrupted, entry.measurement.time_us
