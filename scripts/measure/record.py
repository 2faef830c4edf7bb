"""Records the outcomes of many configurations of a shape on this machine's GPU.

    python scripts/measure/record.py sweep h100 4096x4096x4096 --programs 800 --configs 2400
    python scripts/measure/record.py drawn docs/results/h200/drawn --count 400 --seconds 500

`sweep` writes `autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz`, from which `--device
replay:h100` answers; `4096x4096x4096:bf16` is recorded in that precision. Kernel families share the
programs evenly, as far as they have enough. Half of a family's programs are the model's first
choices, half are drawn evenly from the rest, so that a search meets good and bad programs.

`--extend` continues a recording or an interrupted sweep: recorded configurations are not measured
again and count towards `--configs`.

`drawn` records a few configurations of many drawn shapes: what the cost model learns from best. It
draws shapes as `untuned.py` does, with a seed of its own. Half of a shape's configurations are
those that a race would try. Half are drawn from all that the model expects to take at most 3 times
as long as its best: trials of a search lie near what the model believed, and these do not. A
recording for each shape goes into the folder. Shapes that the folder holds are skipped, so that a
run continues.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)
from untuned import drawn

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.compiler import compile
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Template
from autotune.families.registry import AUTO
from autotune.lookup.promising import contenders
from autotune.measure import devices, recording, targets
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Origin, Recording, SweepRow
from autotune.measure.runner import Candidate, Runner
from autotune.measure.targets import TargetOpener
from autotune.model import cost, space
from autotune.model.space import sample
from autotune.problem import Problem
from autotune.problem.integers import ceil_div
from autotune.records import Records, Store
from autotune.tuning.pipeline import Compile, Compiler, ahead

# Configurations of a family, evenly spread, that the model ranks.
SURVEY = 30_000


def main(
    name: Annotated[str, typer.Argument(help="Name of the recordings.")],
    shapes: Annotated[list[str], typer.Argument(help="Problems to record.")],
    programs: Annotated[int, typer.Option(help="Largest number of programs.")] = 600,
    configs: Annotated[int, typer.Option(help="Largest number of configurations.")] = 600,
    family: Annotated[str, typer.Option(help="Kernel family; auto takes all.")] = AUTO,
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


SEED = 1
"""Not the seed of `untuned.py`, whose shapes test the model that is fitted to these."""


SLOWEST = 3.0


SHOWN = Console(width=110, soft_wrap=True)


def drawn_shapes(
    folder: Annotated[Path, typer.Argument(help="Folder of the recordings.")],
    count: Annotated[int, typer.Option(help="Number of shapes.")] = 400,
    configs: Annotated[int, typer.Option(help="Configurations of a shape.")] = 20,
    seconds: Annotated[float, typer.Option(help="No shape starts after these seconds.")] = 3600.0,
    device: Annotated[str, typer.Option(help="Device, as for `autotune tune`.")] = devices.DEFAULT,
    seed: Annotated[int, typer.Option(help="Random seed.")] = SEED,
) -> None:
    """Records and prints a line for each shape."""
    began, where = monotonic(), targets.resolve(device)
    paths = {
        problem: recording.path_of(folder.name, problem, folder.parent)
        for problem in drawn(count, seed)
    }
    left = [problem for problem, path in paths.items() if not path.exists()]
    SHOWN.print(f"{len(paths) - len(left)} of {len(paths)} shapes are there already")
    pick = partial(chosen, device=where, count=configs, seed=seed)
    with TargetOpener(device) as opener, ThreadPoolExecutor(1, "choose") as pool:
        coming = [pool.submit(pick, problem) for problem in left[:1]]
        for place, problem in enumerate(left):
            if monotonic() - began > seconds:
                break
            picked = coming.pop().result()
            coming = [pool.submit(pick, after) for after in left[place + 1 : place + 2]]
            try:
                with opener.starting(problem) as ready:
                    target = ready()
                    recorded = record(
                        *(problem, target.runner, picked, paths[problem]),
                        compile=partial(compiler.compile, cache=settings.cache_dir()),
                        origin=target.origin,
                    )
            except AutotuneError as error:
                SHOWN.print(f"{problem}: {error}", style="red", markup=False)
                continue
            took = f"{monotonic() - began:.0f} s"
            SHOWN.print(f"{problem!s:32} {len(recorded.rows)} configurations, {took}", markup=False)


def chosen(problem: Problem, device: Device, count: int, seed: int) -> list[Config]:
    """The configurations to measure: promising ones, and drawn ones that are not hopeless."""
    records = Records(Store(settings.cache_dir()))
    best = contenders(problem, device, records, count=count // 2).first
    surveyed = sample(problem, device)
    times = cost.times(surveyed, problem, device)
    slowest = SLOWEST * min(times, default=0.0)
    others = [
        config
        for config, time_us in zip(surveyed, times, strict=True)
        if time_us <= slowest and config not in best
    ]
    random = Random(f"{seed} {problem}")
    return [*best, *random.sample(others, min(len(others), count - len(best)))]


if __name__ == "__main__":
    app = typer.Typer(pretty_exceptions_enable=False)
    app.command("sweep")(main)
    app.command("drawn")(drawn_shapes)
    app()
