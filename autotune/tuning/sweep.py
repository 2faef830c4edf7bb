"""Recording what many configurations do on a live device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan
from autotune.problem import Problem
from autotune.runners.base import Failure, Runner
from autotune.runners.recording import Origin, Recording, SweepRow
from autotune.tuning.evaluate import Compile
from autotune.tuning.pipeline import ahead

# The order is fixed, so compiling further ahead than a search would costs nothing.
WINDOW = 64


def record(
    problem: Problem,
    runner: Runner,
    configs: Sequence[Config],
    path: Path,
    *,
    compile: Compile,
    origin: Origin,
    known: Sequence[SweepRow] = (),
    jobs: int | None = None,
    progress: Callable[[int, SweepRow], None] = lambda _number, _row: None,
) -> Recording:
    """Measures every configuration once, without early stop, and saves the recording.

    Configurations that share a program are measured one after another, so that it is compiled
    once. What a sweep has that ends early is saved as `<path>.partial`, so that it takes the
    place of no complete one.

    Args:
        problem: what they compute.
        runner: what measures; the caller closes it.
        configs: legal configurations, of any families.
        path: of the file (see `recording.path_of`).
        compile: makes a program of a template for an architecture.
        origin: what the measurements are made with.
        known: rows of an earlier sweep, which come first in the file.
        jobs: threads that compile; None takes one for each core but one.
        progress: is told how many rows there are, and the last.
    """
    rows = [*known]
    device, baseline = runner.device, runner.baseline()

    def save(where: Path) -> Recording:
        date = datetime.now(timezone.utc).isoformat(timespec="seconds")
        recording = Recording(problem, device, origin, date, baseline, tuple(rows))
        recording.save(where)
        return recording

    plan = partial(registry.plan, problem=problem)
    ordered = sorted(configs, key=lambda config: _programs(plan(config)))
    try:
        with closing(
            ahead(ordered, plan, runner, compile, window=WINDOW, ordered=True, jobs=jobs)
        ) as all_:
            for config, candidate in all_:
                if isinstance(candidate, Failure):
                    taken = registry.find(config.family).estimate(config)
                    row = SweepRow(config, taken, candidate)
                else:
                    outcome = runner.measure(candidate, None)
                    row = SweepRow(config, candidate.resources, outcome)
                rows.append(row)
                progress(len(rows), row)
    except BaseException:
        save(path.with_name(f"{path.name}.partial"))
        raise
    return save(path)


def _programs(plan: LaunchPlan) -> tuple[str, ...]:
    return tuple(launch.template.expression for launch in plan.launches)
