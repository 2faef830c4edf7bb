"""Records what many configurations of a shape do on the GPU of this machine.

    python scripts/record.py h100 4096x4096x4096 --programs 800 --configs 2400 --ladder

writes `autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz`, which `--device replay:h100`
then answers from; `4096x4096x4096:bf16` is recorded in that precision. Kernel families share the
programs evenly, as far as they have so many. Half of the programs of a family are the model's first
choices, half are drawn evenly from the others, so that a search meets good and bad ones alike.
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

from autotune import cost, families, ladder, recording, settings, space, targets
from autotune.candidates import AUTO
from autotune.compiler import compile
from autotune.config import Config
from autotune.device import Device
from autotune.plan import Template
from autotune.problem import Problem
from autotune.recording import Row
from autotune.runner import Measurement
from autotune.sweep import record

# The model ranks so many configurations of a family, evenly spread.
SURVEY = 30_000


def main(
    name: str,
    shapes: list[str],
    programs: Annotated[int, typer.Option(help="Different kernels to compile at most.")] = 600,
    configs: Annotated[int, typer.Option(help="Configurations to measure at most.")] = 600,
    family: Annotated[str, typer.Option(help="Of the kernels; auto takes all there are.")] = AUTO,
    with_ladder: Annotated[
        bool, typer.Option("--ladder", help="The naive and tiled kernels too.")
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
            chosen = choose(problem, where, serving(problem, family), programs, configs, seed)
            if with_ladder:
                chosen += (step for step in steps(problem) if step not in chosen)
            task = progress.add_task(text, total=len(chosen))
            made = record(
                problem,
                target.runner,
                chosen,
                recording.path_of(name, problem, root),
                compile=partial(compile, cache=cache),
                origin=target.origin,
                progress=partial(advance, progress, task),
            )
        print(summary(made.rows, made.baseline))


def serving(problem: Problem, family: str) -> tuple[str, ...]:
    """The families that a name stands for: itself, or all that are tuned over for the problem.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
    """
    if family == AUTO:
        return families.tuned(problem)
    return (families.serving(family, problem).name,)


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
    # Shapes that split K have dozens of configurations a program; each program has its share.
    share = -(-configs // max(1, len(drawn)))
    return [
        config
        for group in drawn
        for config in (group if len(group) <= share else draw.sample(group, share))
    ][:configs]


def by_program(problem: Problem, device: Device, family: str) -> list[list[Config]]:
    """The legal configurations of a family by their main program, the best predicted first."""
    groups: dict[Template, list[Config]] = {}
    surveyed = space.spread(space.feasible(problem, device, family).configs, SURVEY)
    for _, config in cost.rank(surveyed, problem, device):
        plan = families.plan(config, problem)
        groups.setdefault(plan.main.template, []).append(config)
    return list(groups.values())


def bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )


def advance(shown: Progress, task: TaskID, done: int, _row: Row) -> None:
    shown.update(task, completed=done)


def summary(rows: tuple[Row, ...], baseline: Measurement | None) -> str:
    times = [
        (row.outcome.time_us, row.config) for row in rows if isinstance(row.outcome, Measurement)
    ]
    time_us, config = min(times)
    vendor = f"{baseline.time_us:.2f} us" if baseline else "not timed"
    return f"{len(times)} of {len(rows)} ran; best {time_us:.2f} us, cuBLAS {vendor}: {config}"


if __name__ == "__main__":
    typer.run(main)
