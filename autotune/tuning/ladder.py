"""The ladder: numbered rungs in fp32 and on tensor cores, each precision ending with the tuned
kernel and the vendor's library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec

from autotune import roofline
from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.ladder import LAYOUTS, RUNGS
from autotune.files.decoding import convert
from autotune.measure import oracle, recording
from autotune.measure.measurement import Evidence, Failure, Measurement
from autotune.measure.runner import Candidate, Runner
from autotune.measure.targets import Target
from autotune.model import cost, space
from autotune.model.legality import as_tuned, is_legal
from autotune.model.space import sample
from autotune.problem import Problem
from autotune.records import Entry, Record, Records, Store
from autotune.records.record import BEST_FIRST
from autotune.tuning.pipeline import Compile, prepare
from autotune.tuning.trials import Trial

TUNED = {"f32": ("simt",), "bf16": ("wgmma", "mma")}
"""The families of the tuned kernel of each precision; the first that the device runs."""
VENDOR = "cuBLAS"

STALLS = {
    "long_scoreboard": "global memory",
    "lg_throttle": "the queue of loads from global memory",
    "short_scoreboard": "shared memory",
    "mio_throttle": "the queue of shared memory",
    "barrier": "a barrier",
    "gmma": "tensor cores",
    "math_pipe_throttle": "a busy arithmetic unit",
    "dispatch_stall": "register banks",
    "wait": "a fixed latency",
    "not_selected": "another warp's turn",
}
"""Reasons for which warps wait, by the name of the stall in Nsight Compute."""


@dataclass(frozen=True)
class RungTime:
    """A rung, a tuned kernel or the vendor baseline with its time; None is unknown.

    Attributes:
        name: the rung's number and kernel, or what stands at the end.
        compute: the precision.
        config: the configuration as text; None for the vendor baseline.
        time_us: microseconds of one run.
        gflops: GFLOP/s.
        cublas_share: its speed as a share of cuBLAS's in the same precision.
        peak_share: its speed as a share of the device's peak in the precision.
        flop_per_byte: operations for each byte that its blocks load.
        bound_gflops: GFLOP/s that the memory bandwidth can feed at that intensity.
        roofline_gflops: GFLOP/s if memory moves each matrix once, at most the peak.
        occupancy: share (0..1) of an SM's warps that are resident.
        limiter: the resource that binds the occupancy.
        relative_error: Frobenius norm of the error over that of the float64 reference.
        inaccuracy: how far that error exceeds what a search allows beside the vendor's library;
            None if it does not.
        failure: why there is no time.
    """

    name: str
    compute: str
    config: str | None = None
    time_us: float | None = None
    gflops: float | None = None
    cublas_share: float | None = None
    peak_share: float | None = None
    flop_per_byte: float | None = None
    bound_gflops: float | None = None
    roofline_gflops: float | None = None
    occupancy: float | None = None
    limiter: str | None = None
    relative_error: float | None = None
    inaccuracy: str | None = None
    failure: str | None = None


@dataclass(frozen=True)
class Ladder:
    """The rungs of both precisions, timed in one round.

    Attributes:
        n: side of the matrices.
        device: name of the device on which they ran.
        evidence: evidence of the times.
        peaks: GFLOP/s of the device's peak in each precision.
        rungs: the rungs in order; each precision ends with the tuned kernel and cuBLAS.
        missing: kernels that are left out, and why.
        untuned: kernels that are the cost model's choice, as nothing is recorded for them.
        interrupted: kernels that are the best of a search that was interrupted.
    """

    n: int
    device: str
    evidence: Evidence
    peaks: Mapping[str, float]
    rungs: tuple[RungTime, ...]
    missing: Mapping[str, str] = field(default_factory=dict)
    untuned: tuple[str, ...] = ()
    interrupted: tuple[str, ...] = ()


@dataclass(frozen=True)
class LadderChoice:
    """The tuned kernel of a precision, and where it comes from: a search that ended, one that was
    interrupted, or the cost model."""

    config: Config
    source: Literal["tuned", "interrupted", "model"]

    @property
    def name(self) -> str:
        """The name of its row, such as `tuned simt`."""
        return f"tuned {self.config.family}"


def problems(n: int) -> tuple[Problem, ...]:
    """The problem of each precision of the ladder.

    Raises:
        ProblemError: if `n` is no side of a matrix.
    """
    return tuple(Problem(n, n, n, compute, layout) for compute, layout in LAYOUTS.items())


def climb(
    n: int,
    device: Device,
    choices: Mapping[str, LadderChoice | str],
    opened: Callable[[Problem], AbstractContextManager[Target]],
    compile: Compile,
) -> Ladder:
    """Verifies the rungs and tuned kernels of each precision, and times them interleaved.

    Args:
        n: side of the matrices.
        device: the device.
        choices: the tuned kernel of each precision, or why there is none.
        opened: opens the target that measures a problem.
        compile: makes a program of a template for an architecture.

    Raises:
        AutotuneError: if a precision cannot be measured at all.
    """
    evidence: Evidence = "predicted"
    rungs, missing = list[RungTime](), dict[str, str]()
    for problem in problems(n):
        configs, rejected = _legal(problem, device)
        missing |= rejected
        tuned = choices[problem.compute]
        if isinstance(tuned, str):
            missing[f"tuned {problem.compute}"] = tuned
        else:
            configs[tuned.name] = tuned.config
        if configs:
            with opened(problem) as target:
                evidence = target.runner.evidence
                rungs += _measured(problem, configs, target.runner, compile)
    kernels = [choice for choice in choices.values() if isinstance(choice, LadderChoice)]
    return Ladder(
        n,
        device.name,
        evidence,
        peaks={compute: device.peak(compute) / 1e9 for compute in LAYOUTS},
        rungs=tuple(rungs),
        missing=missing,
        untuned=tuple(kernel.name for kernel in kernels if kernel.source == "model"),
        interrupted=tuple(kernel.name for kernel in kernels if kernel.source == "interrupted"),
    )


def choice(problem: Problem, device: Device, store: Store) -> LadderChoice:
    """The fastest recorded kernel, of the first family of `TUNED` that the device runs, that is
    legal today, or else the cost model's choice.

    Measured searches come before replayed and predicted ones, then searches that ended before
    interrupted ones.

    Raises:
        NotFoundError: if the device can run none; the message says why.
    """
    reasons: dict[str, int] = {}
    for family in TUNED[problem.compute]:
        records = Records(store).load(device, problem), store.family(device, problem, family)
        entries = [(entry, record) for record in records if record for entry in record.entries]
        for entry, record in sorted(entries, key=_rank):
            card, interrupted = as_tuned(device, record.device), record.provenance.interrupted
            if entry.config.family == family and is_legal(entry.config, problem, card):
                return LadderChoice(entry.config, "interrupted" if interrupted else "tuned")
        if configs := sample(problem, device, family):
            (_, config), *_ = cost.rank(configs, problem, device)
            return LadderChoice(config, "model")
        reasons |= space.feasible(problem, device, family).rejected
    raise NotFoundError(f"{device.name} cannot run it ({', '.join(reasons)})")


def load(name: str, n: int, root: Path = recording.ROOT) -> Ladder:
    """The ladder that was recorded on a device, as `autotune ladder N --json` printed it.

    Args:
        name: name of the recordings, such as `h100`.
        n: side of the matrices.
        root: folder of the recordings.

    Raises:
        NotFoundError: if there is none; the message says which there are.
        AutotuneError: if the file is broken.
    """
    path = root / name / f"ladder-{n}.json"
    if not path.is_file():
        files = sorted(root.glob("*/ladder-*.json"))
        ladders = ", ".join(f"{file.parent.name} at {file.stem[7:]}" for file in files)
        raise NotFoundError(
            f"no ladder of {n} is recorded on {name}; recorded: {ladders or 'none'}"
        )
    try:
        recorded = convert(msgspec.json.decode(path.read_bytes()), Ladder, "ladder")
    except (ValueError, msgspec.DecodeError) as error:
        raise AutotuneError(f"{path}: not a recorded ladder: {error}") from error
    return replace(recorded, evidence="replayed")


Counted = Mapping[int, Mapping[str, float]]
"""The counters of each rung, by its number: those that `scripts/measure/ladder.py` asks for, and
for each of `STALLS` the warps that wait for it at each instruction issued."""
COUNTED_ON, COUNTED_SIDE = "h100", 4096
"""The device on which counters are recorded, and the side of the matrices."""


def counters(root: Path = recording.ROOT) -> Counted:
    """The recorded counters.

    Raises:
        NotFoundError: if there are none.
    """
    path = root / COUNTED_ON / f"counters-{COUNTED_SIDE}.json"
    if not path.is_file():
        raise NotFoundError(f"no counters are recorded on {COUNTED_ON}")
    content = msgspec.json.decode(path.read_bytes())["counters"]
    return {int(number): counted for number, counted in content.items()}


def _legal(problem: Problem, device: Device) -> tuple[dict[str, Config], dict[str, str]]:
    """The configurations of the rungs that the device runs, and why it does not run the others."""
    configs, missing = dict[str, Config](), dict[str, str]()
    for rung in RUNGS:
        if rung.compute == problem.compute:
            config = rung.config(device)
            rejection = space.rejection(config, problem, device)
            if rejection is None:
                configs[rung.name] = config
            else:
                missing[rung.name] = str(rejection)
    return configs, missing


def _measured(
    problem: Problem, configs: Mapping[str, Config], runner: Runner, compile: Compile
) -> Iterator[RungTime]:
    """The kernels by name, verified and timed interleaved, then the vendor baseline if there is
    one."""
    prepared = {
        name: prepare(registry.plan(config, problem), runner, compile)
        for name, config in configs.items()
    }
    runner.baseline()  # once it is known, the rematch times it interleaved with the candidates
    ready = [step for step in prepared.values() if isinstance(step, Candidate)]
    outcomes = iter(_timed(ready, runner))
    trials = {
        name: Trial(configs[name], step)
        if isinstance(step, Failure)
        else Trial.of(step, next(outcomes), runner.device)
        for name, step in prepared.items()
    }
    baseline = runner.baseline()
    for name, trial in trials.items():
        yield _rung(name, trial, problem, baseline, runner.device)
    if baseline is not None:
        speed = problem.speed(baseline.time_us)
        yield RungTime(
            VENDOR,
            problem.compute,
            time_us=baseline.time_us,
            gflops=speed / 1e9,
            cublas_share=1.0,
            peak_share=speed / runner.device.peak(problem.compute),
            roofline_gflops=_roofline(problem, runner.device),
            relative_error=baseline.relative_error,
        )


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


def _rung(
    name: str, trial: Trial, problem: Problem, baseline: Measurement | None, device: Device
) -> RungTime:
    outcome, family = trial.outcome, registry.find(trial.config.family)
    tile = family.work(trial.config, problem).tile
    if not family.estimate(trial.config, problem).shared:
        tile = 1, 1  # the threads of the first rungs share nothing
    flop_per_byte = roofline.intensity(*tile, element_bytes=problem.element_bytes)
    rung = RungTime(
        name=name,
        compute=problem.compute,
        config=str(trial.config),
        flop_per_byte=flop_per_byte,
        bound_gflops=roofline.bandwidth_bound(device.memory_bandwidth, flop_per_byte) / 1e9,
        roofline_gflops=_roofline(problem, device),
        occupancy=trial.occupancy,
        limiter=trial.limiter,
    )
    if isinstance(outcome, Failure):
        return replace(rung, failure=f"{outcome.stage}: {outcome.reason}")
    speed = problem.speed(outcome.time_us)
    return replace(
        rung,
        time_us=outcome.time_us,
        gflops=speed / 1e9,
        cublas_share=None if baseline is None else baseline.time_us / outcome.time_us,
        peak_share=speed / device.peak(problem.compute),
        relative_error=outcome.relative_error,
        inaccuracy=_inaccuracy(problem, outcome, baseline),
    )


def _roofline(problem: Problem, device: Device) -> float:
    """GFLOP/s if memory moves each matrix once, at most the peak."""
    return problem.flops / roofline.least_seconds(problem, device) / 1e9


def _inaccuracy(problem: Problem, outcome: Measurement, baseline: Measurement | None) -> str | None:
    """Why a search would refuse the outcome beside the vendor baseline; None if it would not."""
    if baseline is None:
        return None
    checked = oracle.checked_accuracy(problem, outcome, baseline.relative_error)
    return checked.reason if isinstance(checked, Failure) else None


def _rank(row: tuple[Entry, Record]) -> tuple[int, bool, float]:
    """The order of records' entries: by evidence, whether the search ended, and time."""
    entry, record = row
    interrupted = record.provenance.interrupted
    return BEST_FIRST.index(record.evidence), interrupted, entry.measurement.time_us
