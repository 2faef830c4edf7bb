"""Records what many configurations of a shape do on the GPU of this machine.

    python scripts/record.py h100 4096x4096x4096 --programs 800 --configs 2400 --ladder

writes `autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz`, which `--device replay:h100`
then answers from; `4096x4096x4096:bf16` is recorded in that precision. Kernel families share the
programs evenly, as far as they have so many. Half of the programs of a family are the model's first
choices, half are drawn evenly from the others, so that a search meets good and bad ones alike.

`--extend` goes on with a recording, or with what is left of a sweep that ended early: what is known
already is not measured again, and counts among the configurations.
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

from autotune import settings
from autotune.candidates import cost, space
from autotune.candidates.family_names import AUTO
from autotune.compiler import compile
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.problem import Problem
from autotune.runners import recording
from autotune.runners.base import Measurement
from autotune.runners.recording import Origin, Recording, SweepRow
from autotune.targets import targets
from autotune.tuning import ladder
from autotune.tuning.sweep import record

# The model ranks so many configurations of a family, evenly spread.
SURVEY = 30_000


def main(
    name: str,
    shapes: list[str],
    programs: Annotated[int, typer.Option(help="Different kernels to compile at most.")] = 600,
    configs: Annotated[
        int, typer.Option(help="Configurations to measure, if the programs have so many.")
    ] = 600,
    family: Annotated[str, typer.Option(help="Of the kernels; auto takes all there are.")] = AUTO,
    with_ladder: Annotated[
        bool, typer.Option("--ladder", help="The naive and tiled kernels too.")
    ] = False,
    extend: Annotated[
        bool, typer.Option("--extend", help="Keep what was recorded and add to it.")
    ] = False,
    root: Annotated[Path, typer.Option(help="Where recordings are kept.")] = recording.ROOT,
    seed: int = 0,
) -> None:
    """Records SHAPES under NAME."""
    cache = settings.cache_dir()
    for text in shapes:
        problem = Problem.parse(text)
        with targets.opened(problem) as target, bar() as progress:
            where = target.runner.device
            path = recording.path_of(name, problem, root)
            known = earlier(path, where, target.origin) if extend else ()
            there = [row.config for row in known]
            chosen = choose(problem, where, serving(problem, family), programs, configs, seed)
            chosen = added(chosen, there, configs, seed)
            if with_ladder:
                chosen += without(steps(problem), (*chosen, *there))
            task = progress.add_task(text, completed=len(known), total=len(known) + len(chosen))
            made = record(
                problem,
                target.runner,
                chosen,
                path,
                compile=partial(compile, cache=cache),
                origin=target.origin,
                earlier=known,
                progress=partial(advance, progress, task),
            )
            if extend:
                left_of(path).unlink(missing_ok=True)
        print(summary(made.rows, made.baseline))


def serving(problem: Problem, family: str) -> tuple[str, ...]:
    """The families that a name stands for: itself, or all that are tuned over for the problem.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
    """
    if family == AUTO:
        return registry.tuned(problem)
    return (registry.serving(family, problem).name,)


def steps(problem: Problem) -> list[Config]:
    """The naive and tiled kernels of the ladder, which is climbed in fp32 first."""
    return [*ladder.STEPS.values()] if problem.compute == "f32" else []


def choose(
    problem: Problem,
    device: Device,
    names: Sequence[str],
    programs: int,
    configs: int,
    seed: int,
) -> list[Config]:
    """Legal configurations of some families, with at most so many programs between them."""
    draw = random.Random(seed)
    kinds = sorted((by_program(problem, device, name) for name in names), key=len)
    drawn: list[list[Config]] = []
    for taken, groups in enumerate(kinds):  # what the smaller ones leave is for the larger ones
        size = min(len(groups), (programs - len(drawn)) // (len(kinds) - taken))
        best, others = groups[: size // 2], groups[size // 2 :]
        drawn += best + draw.sample(others, size - len(best))
    if sum(map(len, drawn)) < configs:
        drawn = whole(drawn, problem, device)
    return shared(drawn, configs, draw)


def whole(
    groups: Sequence[Sequence[Config]], problem: Problem, device: Device
) -> list[list[Config]]:
    """All legal configurations of some programs, of which the survey has a few each."""
    found: dict[Template, dict[Config, None]] = {
        registry.plan(group[0], problem).main.template: dict.fromkeys(group) for group in groups
    }
    for family in dict.fromkeys(group[0].family for group in groups):
        for config in space.feasible(problem, device, family).configs:
            siblings = found.get(registry.plan(config, problem).main.template)
            if siblings is not None:
                siblings[config] = None
    return [[*siblings] for siblings in found.values()]


def shared(groups: Sequence[list[Config]], count: int, draw: random.Random) -> list[Config]:
    """So many configurations, as evenly from all groups as their sizes allow.

    Shapes that split K have dozens of configurations a program, and other programs have one.
    """
    chosen: list[Config] = []
    for taken, group in enumerate(sorted(groups, key=len)):
        share = -(-(count - len(chosen)) // (len(groups) - taken))
        chosen += group if len(group) <= share else draw.sample(group, share)
    return chosen


def added(
    chosen: Sequence[Config], known: Sequence[Config], configs: int, seed: int
) -> list[Config]:
    """What has to be measured of a choice so that there are so many configurations in the end."""
    new = without(chosen, known)
    return random.Random(seed).sample(new, max(0, min(len(new), configs - len(known))))


def without(configs: Sequence[Config], known: Sequence[Config]) -> list[Config]:
    """Those that are not known."""
    there = frozenset(known)
    return [config for config in configs if config not in there]


def earlier(path: Path, device: Device, origin: Origin) -> tuple[SweepRow, ...]:
    """What a recording has, and what a sweep that ended early has left beside it.

    Raises:
        typer.BadParameter: if it is of another device, or of other kernels or compilers.
    """
    rows: dict[Config, SweepRow] = {}
    for file in (path, left_of(path)):
        if file.exists():
            there = Recording.load(file)
            if (there.device.name, there.origin) != (device.name, origin):
                raise typer.BadParameter(
                    f"{file} is of {there.device.name}, {there.origin}; here are {device.name}, "
                    f"{origin}; record it anew, without --extend"
                )
            rows = {row.config: row for row in there.rows} | rows
    return tuple(rows.values())


def left_of(path: Path) -> Path:
    """Where `sweep.record` leaves what it has if it ends early."""
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
