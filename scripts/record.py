"""Records what many configurations of a shape do on the GPU of this machine.

    python scripts/record.py h100 4096x4096x4096 --programs 800 --configs 2400 --ladder

writes `autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz`, which `--device replay:h100`
then answers from. Half of the programs are the model's first choices, half are drawn evenly from
the others, so that a search meets good and bad ones alike.
"""

from __future__ import annotations

import random
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
from autotune.compiler import compile
from autotune.config import Config
from autotune.device import Device
from autotune.plan import Template
from autotune.problem import Problem
from autotune.recording import Row
from autotune.runner import Measurement
from autotune.sweep import record


def main(
    name: str,
    shapes: list[str],
    programs: Annotated[int, typer.Option(help="Different kernels to compile at most.")] = 600,
    configs: Annotated[int, typer.Option(help="Configurations to measure at most.")] = 600,
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
            chosen = choose(problem, target.runner.device, programs, configs, seed)
            if with_ladder:
                chosen += ladder.STEPS.values()
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


def choose(
    problem: Problem, device: Device, programs: int, configs: int, seed: int
) -> list[Config]:
    """Legal configurations of `simt` with at most so many different programs between them."""
    by_program: dict[Template, list[Config]] = {}
    for _, config in cost.rank(space.feasible(problem, device).configs, problem, device):
        plan = families.plan(config, problem)
        by_program.setdefault(plan.launches[0].template, []).append(config)
    groups = list(by_program.values())
    draw = random.Random(seed)
    best, others = groups[: programs // 2], groups[programs // 2 :]
    drawn = draw.sample(others, min(len(others), programs - len(best)))
    # Shapes that split K have dozens of configurations a program; each program has its share.
    share = -(-configs // max(1, len(best) + len(drawn)))
    return [
        config
        for group in best + drawn
        for config in (group if len(group) <= share else draw.sample(group, share))
    ][:configs]


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
