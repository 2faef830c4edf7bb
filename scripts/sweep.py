"""A sweep: many configurations measured on a live device and saved as a recording."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.measure.measurement import Failure
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.measure.runner import Candidate, Runner
from autotune.problem import Problem
from autotune.tuning.pipeline import Compile, Compiler, ahead

WINDOW = 64
"""Candidates under way. The order is fixed, so compiling further ahead than a search does costs
nothing."""


def record(
    problem: Problem,
    runner: Runner,
    configs: Sequence[Config],
    path: Path,
    *,
    compile: Compile,
    origin: Origin,
    earlier: Sequence[SweepRow] = (),
    jobs: int | None = None,
    progress: Callable[[int, SweepRow], None] = lambda _number, _row: None,
) -> Recording:
    """Measures every configuration once, without early stop, and saves the recording.

    Configurations that share a program are measured one after another, so that it is compiled
    once. A sweep that ends early is saved as `<path>.partial`, so that it replaces no complete
    recording.

    Args:
        problem: the problem to run.
        runner: measures; the caller closes it.
        configs: legal configurations, of any families.
        path: the recording's file (see `recording.path_of`).
        compile: makes a program of a template for an architecture.
        origin: compiler, driver and sources of the measurements.
        earlier: rows of an earlier sweep; they come first in the file.
        jobs: compiler threads; None takes one for each core but one.
        progress: called with the number of rows and the last one.
    """
    rows = [*earlier]
    device, baseline = runner.device, runner.baseline()

    def save(where: Path) -> Recording:
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        recording = Recording(problem, device, origin, date, baseline, tuple(rows))
        recording.save(where)
        return recording

    plan = partial(registry.plan, problem=problem)
    ordered = sorted(configs, key=lambda config: _programs(plan(config)))
    try:
        with (
            closing(Compiler(compile, plan, runner, jobs)) as compiler,
            closing(ahead(ordered, compiler, ordered=True, window=WINDOW)) as prepared,
        ):
            for config, candidate in prepared:
                row = _row(config, problem, candidate, runner)
                rows.append(row)
                progress(len(rows), row)
    except BaseException:
        save(path.with_name(f"{path.name}.partial"))
        raise
    return save(path)


def _row(
    config: Config, problem: Problem, candidate: Candidate | Failure, runner: Runner
) -> SweepRow:
    if isinstance(candidate, Failure):
        estimate = registry.find(config.family).estimate(config, problem, runner.device)
        return SweepRow(config, estimate, candidate)
    return SweepRow(config, candidate.resources, runner.measure(candidate, None))


def _programs(plan: LaunchPlan) -> tuple[str, ...]:
    return tuple(launch.template.label for launch in plan.launches)
