"""Replays searches on a recorded space and reports how soon they find good configurations.

    python scripts/replay.py docs/results/spaces/xgemm_rtx3090_4096.csv.gz \\
        --sampler gp --sampler tpe --kernel-tuner adaptive_tabu_greywolf
    python scripts/replay.py autotune/data/recordings/h100/4096x4096x4096-f32-nn.json.gz --blind

print a table with one row a method. No GPU is needed; Kernel Tuner's strategies need
`pip install --group compare`. `spaces.py` says what a space is.

A run sees each configuration with the recorded noise, the same for all methods of one seed, and is
scored by the recorded times. It chooses the configuration with the shortest time it saw. With
`--rematch` it first times its leaders again, as `autotune tune` does.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Annotated, Any, get_args

import curves
import spaces
import typer
from curves import Run
from rich.console import Console
from rich.progress import track
from spaces import Outcome, Space

from autotune.cores import available
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.measure.objective import winner
from autotune.measure.without_gpu import ROUNDS
from autotune.tuning.options import Sampler
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trials import Leaderboard, Trial

KERNEL_TUNER = "kernel-tuner:"


UNKNOWN = Resources(threads=0, registers=0, shared=0)


SHOWN = Console(width=120, soft_wrap=True)


def main(
    path: Annotated[Path, typer.Argument(help="Recording (.json.gz) or table (.csv or .csv.gz).")],
    samplers: Annotated[
        list[str] | None, typer.Option("--sampler", help="Sampler of this package.")
    ] = None,
    strategies: Annotated[
        list[str] | None, typer.Option("--kernel-tuner", help="Strategy of Kernel Tuner.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each method.")] = 50,
    evaluations: Annotated[int, typer.Option(min=1, help="Evaluations of each run.")] = 200,
    blind: Annotated[
        bool, typer.Option("--blind", help="Search without guesses and features.")
    ] = False,
    rematch: Annotated[bool, typer.Option("--rematch", help="Time the leaders again.")] = False,
    window: Annotated[int, typer.Option(min=1, help="Number of configurations in flight.")] = 1,
    jobs: Annotated[int, typer.Option(min=1, help="Number of processes.")] = available(),
    out: Annotated[Path | None, typer.Option("--json", help="JSON file for all results.")] = None,
    commit: Annotated[str, typer.Option(help="Commit to record in the results.")] = "",
) -> None:
    """Prints how soon methods find good configurations in PATH; `gp` if none is named."""
    methods = chosen(samplers or ([] if strategies else ["gp"]), strategies or [])
    try:
        space = spaces.load(path, blind)
    except AutotuneError as error:
        raise typer.BadParameter(str(error)) from error
    tasks = [
        Task(path, blind, method, seed, evaluations, window, rematch)
        for method in methods
        for seed in range(seeds)
    ]
    runs = [*track(done(tasks, jobs), total=len(tasks), transient=True, console=SHOWN)]
    rows = [curves.row(method, [run for run in runs if run.method == method]) for method in methods]
    SHOWN.print(f"{path.name}: {len(space.outcomes)} configurations, {space.failures} fail")
    SHOWN.print(curves.table(rows))
    if out is not None:
        settings = asdict(tasks[0])
        del settings["path"], settings["method"], settings["seed"]
        results = {**header(path, space, commit), "seeds": seeds, **settings, "rows": rows}
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")


def chosen(samplers: Sequence[str], strategies: Sequence[str]) -> list[str]:
    """The names of all methods, each once.

    Raises:
        typer.BadParameter: if a name is unknown, or Kernel Tuner is not installed.
    """
    ours: tuple[str, ...] = get_args(Sampler)
    for name in samplers:
        if name not in ours:
            raise typer.BadParameter(f"no sampler is named {name!r}; there is {', '.join(ours)}")
    if strategies:
        theirs = kernel_tuner_strategies()
        for name in strategies:
            if name not in theirs:
                names = ", ".join(theirs)
                raise typer.BadParameter(f"Kernel Tuner has no strategy {name!r}, but {names}")
    return [*dict.fromkeys((*samplers, *(KERNEL_TUNER + name for name in strategies)))]


def kernel_tuner_strategies() -> tuple[str, ...]:
    """The names of Kernel Tuner's strategies.

    Raises:
        typer.BadParameter: if Kernel Tuner is not installed.
    """
    try:
        import kernel_tuner_replay
    except ModuleNotFoundError as error:
        raise typer.BadParameter(
            f"--kernel-tuner needs Kernel Tuner ({error}); pip install --group compare"
        ) from error
    return kernel_tuner_replay.STRATEGIES


@dataclass(frozen=True)
class Task:
    """One run of a method."""

    path: Path
    blind: bool
    method: str
    seed: int
    evaluations: int
    window: int
    rematch: bool


def done(tasks: Sequence[Task], jobs: int) -> Iterator[Run]:
    """The runs, in order."""
    if jobs == 1:
        yield from map(run, tasks)
        return
    # With a process on every core, the threads of numpy would only compete.
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(run, tasks)


def run(task: Task) -> Run:
    """Runs a method on its space."""
    space = spaces.load(task.path, task.blind)
    seen = space.drawn(Random(task.seed))
    name = task.method.removeprefix(KERNEL_TUNER)
    if name != task.method:
        import kernel_tuner_replay

        answer = kernel_tuner_replay.search(space, name, task.seed, task.evaluations, seen)
        trials, seconds = [Trial(config, seen[config]) for config in answer.configs], answer.seconds
    else:
        trials, seconds = searched(space, task, seen)
    again = Random(f"again {task.seed}") if task.rematch else None
    return Run(
        method=task.method,
        tried=tuple(space.share(trial.config) for trial in trials),
        chosen=tuple(choices(space, trials, again)),
        ask_ms=1e3 * seconds / len(trials),
    )


def search_of(space: Space, sampler: str, seed: int) -> Proposer:
    """This package's search of a space."""
    named: dict[str, Sampler] = {name: name for name in get_args(Sampler)}
    return Proposer(
        space.configs,
        sampler=named[sampler],
        seed=seed,
        guesses=space.guesses,
        describe=space.describe,
    )


def searched(space: Space, task: Task, seen: dict[Config, Outcome]) -> tuple[list[Trial], float]:
    """The trials of this package's search, and the seconds it took to choose."""
    search = search_of(space, task.method, task.seed)
    trials: list[Trial] = []
    in_flight: list[Config] = []
    asked, began = 0, perf_counter()
    while True:
        while len(in_flight) < task.window and asked < task.evaluations:
            config = search.ask()
            if config is None:
                break
            asked += 1
            in_flight.append(config)
        if not in_flight:
            return trials, perf_counter() - began
        config = in_flight.pop(0)
        trials.append(Trial(config, seen[config], space.resources.get(config)))
        search.tell(trials[-1])


def choices(space: Space, trials: Iterable[Trial], again: Random | None) -> Iterator[float]:
    """The share of the optimum of the choice after each trial.

    `again` draws the noise of the leaders' second times; without it the first times decide.
    """
    leaderboard = Leaderboard()
    for trial in trials:
        leaderboard.add(trial)
        if leaderboard.best is None:
            yield 0.0
        elif again is None:
            yield space.share(leaderboard.best.config)
        else:
            leaders = (
                RetimedLeader.of(space, trial.config, again) for trial in leaderboard.leaders
            )
            yield space.share(winner(leaders).config)


@dataclass(frozen=True)
class RetimedLeader:
    """A leader with its second time."""

    config: Config
    measurement: Measurement
    resources: Resources

    @classmethod
    def of(cls, space: Space, config: Config, random: Random) -> RetimedLeader:
        """The configuration with its second time."""
        outcome = space.again(config, random, ROUNDS)
        assert isinstance(outcome, Measurement)
        return cls(config, outcome, space.resources.get(config, UNKNOWN))


def header(path: Path, space: Space, commit: str) -> dict[str, Any]:
    """The space and the provenance of the results."""
    recorded = space.recording
    return {
        "space": path.name,
        "sha256": sha256(path.read_bytes()).hexdigest(),
        "problem": recorded and str(recorded.problem),
        "device": recorded and recorded.device.name,
        "driver": recorded and recorded.origin.driver,
        "toolkit": recorded and recorded.origin.compiler,
        "configs": len(space.outcomes),
        "failures": space.failures,
        "optimum_us": space.optimum_us,
        "versions": versions("tile-autotune", "optuna", "numpy", "kernel_tuner"),
        "commit": commit,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }


def versions(*packages: str) -> dict[str, str]:
    """The versions of the packages that are installed."""
    installed: dict[str, str] = {}
    for name in packages:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


if __name__ == "__main__":
    typer.run(main)
