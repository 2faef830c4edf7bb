"""Records the outcomes of many configurations of a shape on this machine's GPU.

    python scripts/record.py h100 4096x4096x4096 --programs 800 --configs 2400 --ladder

writes `autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz`, from which `--device
replay:h100` answers; `4096x4096x4096:bf16` is recorded in that precision. Kernel families share the
programs evenly, as far as they have enough. Half of a family's programs are the model's first
choices, half are drawn evenly from the rest, so that a search meets good and bad programs.

`--extend` continues a recording or an interrupted sweep: recorded configurations are not measured
again and count towards `--configs`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from sweep import record

from autotune import settings
from autotune.cuda.compiler import compile
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.families.registry import AUTO
from autotune.measure import recording, targets
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.problem.integers import ceil_div
from autotune.tuning import ladder

# Configurations of a family, evenly spread, that the model ranks.
SURVEY = 30_000


def main(
    name: Annotated[str, typer.Argument(help="Name of the recordings.")],
    shapes: Annotated[list[str], typer.Argument(help="Problems to record.")],
    programs: Annotated[int, typer.Option(help="Largest number of programs.")] = 600,
    configs: Annotated[int, typer.Option(help="Largest number of configurations.")] = 600,
    family: Annotated[str, typer.Option(help="Kernel family; auto takes all.")] = AUTO,
    with_ladder: Annotated[
        bool, typer.Option("--ladder", help="Record the naive and tiled kernels too.")
    ] = False,
    extend: Annotated[bool, typer.Option("--extend", help="Add to an existing recording.")] = False,
    root: Annotated[Path, typer.Option(help="Directory of recordings.")] = recording.ROOT,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
) -> None:
    """Records SHAPES under NAME."""
    cache = settings.cache_dir()
    for text in shapes:
        problem = Problem.parse(text)
        with targets.opened(problem) as target, bar() as progress:
            where = target.runner.device
            path = recording.path_of(name, problem, root)
            rows = earlier(path, where, target.origin) if extend else ()
            recorded = [row.config for row in rows]
            chosen = choose(problem, where, serving(problem, family), programs, configs, seed)
            chosen = added(chosen, recorded, configs, seed)
            if with_ladder:
                chosen += without(steps(problem), (*chosen, *recorded))
            task = progress.add_task(text, completed=len(rows), total=len(rows) + len(chosen))
            sweep = record(
                problem,
                target.runner,
                chosen,
                path,
                compile=partial(compile, cache=cache),
                origin=target.origin,
                earlier=rows,
                progress=partial(advance, progress, task),
            )
            if extend:
                left_of(path).unlink(missing_ok=True)
        print(summary(sweep.rows, sweep.baseline))


def serving(problem: Problem, family: str) -> tuple[str, ...]:
    """The families of a name: the one with that name, or all that are searched for the problem.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
    """
    if family == AUTO:
        return registry.tuned(problem)
    return (registry.serving(family, problem).name,)


def steps(problem: Problem) -> list[Config]:
    """The naive and tiled kernels of the ladder, for fp32."""
    return [*ladder.STEPS.values()] if problem.compute == "f32" else []


def choose(
    problem: Problem,
    device: Device,
    names: Sequence[str],
    programs: int,
    configs: int,
    seed: int,
) -> list[Config]:
    """Legal configurations of some families, with at most `programs` programs in total."""
    draw = random.Random(seed)
    kinds = sorted((by_program(problem, device, name) for name in names), key=len)
    drawn: list[list[Config]] = []
    # Small families come first, so that larger ones get the programs these leave.
    for place, groups in enumerate(kinds):
        size = min(len(groups), (programs - len(drawn)) // (len(kinds) - place))
        best, rest = groups[: size // 2], groups[size // 2 :]
        drawn += best + draw.sample(rest, size - len(best))
    if sum(map(len, drawn)) < configs:
        drawn = whole(drawn, problem, device)
    return shared(drawn, configs, draw)


def whole(
    groups: Sequence[Sequence[Config]], problem: Problem, device: Device
) -> list[list[Config]]:
    """All legal configurations of the programs; the survey has only a few of each."""
    siblings_of: dict[Template, dict[Config, None]] = {
        registry.plan(group[0], problem).main.template: dict.fromkeys(group) for group in groups
    }
    for family in dict.fromkeys(group[0].family for group in groups):
        for config in space.feasible(problem, device, family).configs:
            siblings = siblings_of.get(registry.plan(config, problem).main.template)
            if siblings is not None:
                siblings[config] = None
    return [[*siblings] for siblings in siblings_of.values()]


def shared(groups: Sequence[list[Config]], count: int, draw: random.Random) -> list[Config]:
    """`count` configurations, as evenly from all groups as their sizes allow.

    A program that splits K has dozens of configurations, others have one.
    """
    chosen: list[Config] = []
    for place, group in enumerate(sorted(groups, key=len)):
        share = ceil_div(count - len(chosen), len(groups) - place)
        chosen += group if len(group) <= share else draw.sample(group, share)
    return chosen


def added(
    chosen: Sequence[Config], recorded: Sequence[Config], configs: int, seed: int
) -> list[Config]:
    """The part of the chosen configurations that brings the recorded ones to `configs`."""
    new = without(chosen, recorded)
    return random.Random(seed).sample(new, max(0, min(len(new), configs - len(recorded))))


def without(configs: Sequence[Config], recorded: Sequence[Config]) -> list[Config]:
    """The configurations that are not recorded."""
    excluded = frozenset(recorded)
    return [config for config in configs if config not in excluded]


def earlier(path: Path, device: Device, origin: Origin) -> tuple[SweepRow, ...]:
    """The rows of a recording, and of a sweep beside it that ended early.

    Raises:
        typer.BadParameter: if they are of another device, or of other kernels or compilers.
    """
    rows: dict[Config, SweepRow] = {}
    for file in (path, left_of(path)):
        if file.exists():
            saved = Recording.load(file)
            if (saved.device.name, saved.origin) != (device.name, origin):
                raise typer.BadParameter(
                    f"{file} is of {saved.device.name}, {saved.origin}; here are {device.name}, "
                    f"{origin}; record it anew, without --extend"
                )
            rows = {row.config: row for row in saved.rows} | rows
    return tuple(rows.values())


def left_of(path: Path) -> Path:
    """The file that `sweep.record` writes if it ends early."""
    return path.with_name(f"{path.name}.partial")


def by_program(problem: Problem, device: Device, family: str) -> list[list[Config]]:
    """The legal configurations of a family by their main program, the best predicted first."""
    groups: dict[Template, list[Config]] = {}
    surveyed = space.spread(space.feasible(problem, device, family).configs, SURVEY)
    for _, config in cost.rank(surveyed, problem, device):
        plan = registry.plan(config, problem)
        groups.setdefault(plan.main.template, []).append(config)
    return list(groups.values())


def bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )


def advance(shown: Progress, task: TaskID, done: int, _row: SweepRow) -> None:
    shown.update(task, completed=done)


def summary(rows: tuple[SweepRow, ...], baseline: Measurement | None) -> str:
    times = [
        (row.outcome.time_us, row.config) for row in rows if isinstance(row.outcome, Measurement)
    ]
    time_us, config = min(times)
    vendor = f"{baseline.time_us:.2f} us" if baseline else "not timed"
    return f"{len(times)} of {len(rows)} ran; best {time_us:.2f} us, cuBLAS {vendor}: {config}"


if __name__ == "__main__":
    typer.run(main)
